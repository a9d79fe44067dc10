// The memory that a hostile file costs. `protrain check` must report the error and exit normally, with less than 256
// MiB.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "draft/hostile_cases.h"
#include "onnx_import/hostile_cases.h"
#include "onnx_import/skeleton.h"

namespace protrain::test::hostile_test {
namespace {

struct Cost {
  int status = -1;
  double megabytes = 0, seconds = 0;
};

// Runs `protrain check` on these bytes. Returns its exit status, memory and time.
Cost check(const std::string &bytes) {
  const Scratch scratch;
  const std::string model = scratch.put("model.onnx", bytes);
  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    execl(PROTRAIN_COMMAND, PROTRAIN_COMMAND, "check", model.c_str(), "--loss", "mse", nullptr);
    _exit(98);
  }
  Cost cost;
  rusage usage{};
  wait4(child, &cost.status, 0, &usage);
  cost.megabytes = static_cast<double>(usage.ru_maxrss) / 1024;
  for (const timeval &time : {usage.ru_utime, usage.ru_stime})
    cost.seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  return cost;
}

class Hostile : public testing::Test {
 protected:
  void expect_cheap(const std::string &name, const std::string &bytes, int status = 1) {
    const Cost cost = check(bytes);
    EXPECT_TRUE(WIFEXITED(cost.status) && WEXITSTATUS(cost.status) == status) << name << ": status " << cost.status;
    EXPECT_LT(cost.megabytes, 256) << name;
    if (cost.megabytes > most_.megabytes) largest_ = name;
    if (cost.seconds > most_.seconds) slowest_ = name;
    most_ = {0, std::max(most_.megabytes, cost.megabytes), std::max(most_.seconds, cost.seconds)};
  }
  ~Hostile() override {
    std::printf("[ figures  ] at most %.0f MiB (%s) and %.2f s (%s)\n", most_.megabytes, largest_.c_str(),
                most_.seconds, slowest_.c_str());
  }

 private:
  Cost most_;
  std::string largest_, slowest_;
};

TEST_F(Hostile, FilesCostLittle) {
  for (const HostileFile &one : hostile_files()) expect_cheap(one.name, one.bytes());
}

TEST_F(Hostile, GraphsCostLittle) {
  for (const HostileGraph &one : hostile_graphs()) {
    Wire wire;
    one.change(wire);
    expect_cheap(one.name, wire.bytes());
  }
}

// A long chain of nodes. `check` must report an error, because the last operator is unknown.
TEST_F(Hostile, LongChainsCostLittle) {
  Wire wire;
  wire.nodes = {node("MatMul", {"x", "w"}, {"0"})};
  for (int i = 0; i < 80'000; ++i) wire.nodes.push_back(node("Neg", {std::to_string(i)}, {std::to_string(i + 1)}));
  wire.nodes.push_back(node("Wavelet", {"80000"}, {"z"}));
  wire.outputs = {value("z", kFloat, {})};
  expect_cheap("chain", wire.bytes());
}

// `check` accepts pools whose windows consist of pads, and makes their kernels.
TEST_F(Hostile, PoolsOfPadsCostLittle) {
  constexpr std::int64_t kWide = std::int64_t{1} << 27;
  for (const char *op : {"MaxPool", "AveragePool"}) {
    Wire wire;
    after({node("Reshape", {"y", "s"}, {"r"}),
           node(op, {"r"}, {"z"}, {ints("kernel_shape", {kWide}), ints("pads", {kWide / 2, kWide / 2 - 1})})},
          {integers("s", {2, 4, 1})})(wire);
    expect_cheap(op, wire.bytes(), 0);
  }
}

// The largest number of parts with which the library accepts a file, found to within 2 %, and the size of that file's
// skeleton (onnx_import/skeleton.h).
struct Most {
  std::size_t parts = 1;
  std::size_t skeleton_bytes = 0;
};

Most most_accepted(const std::function<std::string(std::size_t)> &bytes) {
  const Scratch scratch;
  const auto skeleton = [&](std::size_t n) {
    try {
      return onnx_import::read_skeleton(File::open(scratch.put("model.onnx", bytes(n)))).size();
    } catch (const Error &error) {
      EXPECT_EQ(error.code, Code::limit) << error.text;
      return std::size_t{0};
    }
  };
  std::size_t most = 1, too_many = 2;
  for (; skeleton(too_many) > 0; too_many *= 2) most = too_many;
  while (too_many - most > most / 64) {
    const std::size_t middle = (most + too_many) / 2;
    (skeleton(middle) > 0 ? most : too_many) = middle;
  }
  return {most, skeleton(most)};
}

// Each file consists of parts of one kind, nearly up to the number that the limits allow. Protobuf's memory must stay
// below the bound that the library computes.
TEST_F(Hostile, PartsTakeWhatTheFormulaSays) {
  struct Parts {
    const char *name;
    std::function<void(Wire &, std::size_t)> put;
  };
  const auto of_node = [](const std::string &part) {
    return [=](Wire &wire, std::size_t n) { wire.nodes.push_back(node("", {"x"}, {"z"}) + repeated(part, n)); };
  };
  const auto of_graph = [](const std::string &part) {
    return [=](Wire &wire, std::size_t n) { wire.graph_extra = field(1, "") + repeated(part, n); };
  };
  const auto of_model = [](const std::string &part) {
    return [=](Wire &wire, std::size_t n) { wire.tail = field(25, "") + repeated(part, n); };
  };
  const std::vector<Parts> kinds{
      {"nodes", of_graph(field(1, ""))},
      {"initializers", of_graph(field(5, ""))},
      {"inputs", of_graph(field(11, field(2, field(1, field(2, "")))))},
      {"texts", of_graph(field(10, std::string(100, 'a')))},
      {"names", of_node(field(1, ""))},
      {"attributes", of_node(field(5, ""))},
      {"tensors", of_node(field(5, field(5, "")))},
      {"integers",
       [](Wire &wire, std::size_t n) { wire.nodes.push_back(node("", {"x"}, {"z"}, {repeated(field(8, 1), n)})); }},
      {"packed integers",
       [](Wire &wire, std::size_t n) { wire.nodes.push_back(node("", {"x"}, {"z"}, {field(8, std::string(n, 1))})); }},
      {"small tensors", of_graph(field(5, field(9, std::string(1000, 'a'))))},
      {"small lists", of_graph(field(5, field(7, std::string(1000, 'a'))))},
      {"entries", [](Wire &wire, std::size_t n) { wire.initializers.push_back(repeated(field(13, ""), n)); }},
      {"imports", of_model(field(8, ""))},
      {"functions", of_model(field(25, ""))},
      {"unknown fields", of_model(field(99, 1))},
  };
  const double nothing = check(Wire().bytes()).megabytes;
  for (const Parts &kind : kinds) {
    const auto bytes = [&](std::size_t n) {
      Wire wire;
      kind.put(wire, n);
      return wire.bytes();
    };
    const Most most = most_accepted(bytes);
    const double size = static_cast<double>(most.skeleton_bytes) / (1 << 20);
    const double formula = onnx_import::kParseBytes / (1 << 20) + onnx_import::kParseBytesPerByte * size;
    const Cost cost = check(bytes(most.parts));
    std::printf("[ figures  ] %zu %s: %.0f MiB of skeleton, %.0f MiB more than nothing, formula %.0f MiB\n", most.parts,
                kind.name, size, cost.megabytes - nothing, formula);
    EXPECT_TRUE(WIFEXITED(cost.status) && WEXITSTATUS(cost.status) == 1) << kind.name;
    EXPECT_LT(cost.megabytes - nothing, size + formula + 8) << kind.name;  // `size`: the skeleton itself
    EXPECT_LT(cost.megabytes, 256) << kind.name;
  }
}

}  // namespace
}  // namespace protrain::test::hostile_test
