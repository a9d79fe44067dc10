// A process takes no more memory than planned: its resident size stays below the planned size, and it can run in a
// control group that is limited to that size. Each case runs in a process of its own, because a process cannot reset
// its peak.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "fixtures.h"
#include "scratch.h"

namespace protrain::test::resident_size_test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kAllowance = 192ull << 20;  // for code, stacks and libraries of any model

struct Case {
  const char *name, *model, *plan;
  std::vector<std::string> flags;
};

// The models are small, but their large batches take hundreds of MiB, nearly all for activations. So the planned size
// exceeds kAllowance, and a process that held its arena twice would fail the test.
const std::vector<Case> kCases = {
    {"resident", "llama-dynamic-opset23", R"({"n_persist": 99})", {}},
    {"recompute", "llama-dynamic-opset23", R"({"n_persist": 99, "n_checkpoint": 99})", {}},
    {"selective", "gpt2-dynamic-opset18", R"({"n_persist": 99, "n_selective": 99})", {}},
    {"swap_to_disk", "llama-dynamic-opset23", R"({"n_persist": 0, "n_host": 0, "n_swap": 99})", {}},
    {"swap_to_host",
     "gpt2-dynamic-opset18",
     R"({"n_persist": 0, "n_buffer": 2, "n_swap": 99, "chunk_bytes": 65536})",
     {"--device-memory", "2GiB", "--host-memory", "2GiB"}},
    {"offload_and_recompute",
     "retention-dynamic-opset18",
     R"({"n_persist": 0, "n_buffer": 2, "n_checkpoint": 99, "chunk_bytes": 65536})",
     {"--device-memory", "2GiB", "--host-memory", "2GiB"}},
};

// A control group (of version 1 or 2) that limits memory. made() is false if this process could not create the group.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::uint64_t limit) {
    const std::string name = "protrain-test-" + std::to_string(getpid());
    for (const auto &[root, key] :
         {std::pair("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), std::pair("/sys/fs/cgroup", "memory.max")}) {
      const fs::path path = fs::path(root) / name;
      std::error_code error;
      if (!fs::create_directory(path, error)) continue;
      std::ofstream file(path / key);
      if (file << limit && file.flush()) {
        path_ = path;
        return;
      }
      rmdir(path.c_str());
    }
  }
  ~MemoryGroup() {
    if (made()) rmdir(path_.c_str());
  }
  bool made() const { return !path_.empty(); }
  std::string members() const { return (path_ / "cgroup.procs").string(); }

 private:
  fs::path path_;
};

struct Outcome {
  int status = -1;  // the status that wait4 returns
  std::uint64_t resident = 0;
};

class ResidentSize : public testing::TestWithParam<Case> {
 protected:
  static constexpr int kBatch = 512, kSequence = 64;

  void SetUp() override {
    std::ofstream(directory_.file("plan.json")) << GetParam().plan;
    std::ofstream tokens(directory_.file("tokens.bin"), std::ios::binary);
    std::mt19937 random(1);
    for (int i = 0; i < 2 * kBatch * kSequence; ++i) {
      const auto token = static_cast<std::uint16_t>(random() % 512);
      tokens.write(reinterpret_cast<const char *>(&token), sizeof token);
    }
  }

  // Returns the arguments of a subcommand, with the options that choose the plan.
  std::vector<std::string> command(const std::string &subcommand, const std::vector<std::string> &more) const {
    std::vector<std::string> words = {PROTRAIN_COMMAND, subcommand, fixture(std::string(GetParam().model) + ".onnx")};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--threads", "2", "--plan", directory_.file("plan.json")});
    words.insert(words.end(), {"--offload-dir", directory_.file("")});
    words.insert(words.end(), GetParam().flags.begin(), GetParam().flags.end());
    return words;
  }

  // Runs a command, and writes its standard output to the file `output`. The command runs in a control group: `group`
  // is the file that lists the group's members; "" for no group.
  static Outcome run(const std::vector<std::string> &words, const std::string &output, const std::string &group) {
    std::vector<char *> arguments;
    for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      const int out = open(output.c_str(), O_WRONLY | O_CREAT, 0600), members = open(group.c_str(), O_WRONLY);
      if (!group.empty() && (members < 0 || write(members, "0", 1) != 1)) _exit(99);
      dup2(out, STDOUT_FILENO);
      execv(arguments[0], arguments.data());
      _exit(98);
    }
    Outcome outcome;
    rusage usage{};
    wait4(child, &outcome.status, 0, &usage);
    outcome.resident = static_cast<std::uint64_t>(usage.ru_maxrss) << 10;
    return outcome;
  }

  // Returns the bytes that the plan takes on device and host.
  std::uint64_t planned() const {
    const std::string output = directory_.file("planned.json");
    const auto dim = [](const char *name, int size) { return name + ("=" + std::to_string(size)); };
    const auto words = command("plan", {"--dim", dim("batch", kBatch), "--dim", dim("sequence", kSequence), "--json"});
    EXPECT_EQ(run(words, output, "").status, 0);
    std::ifstream file(output);
    const auto plan = nlohmann::json::parse(file);
    return plan.at("device_peak_bytes").get<std::uint64_t>() + plan.at("host_peak_bytes").get<std::uint64_t>();
  }

  Scratch directory_;
};

TEST_P(ResidentSize, StaysBelowWhatIsPlannedAndTheAllowanceAndAControlGroupOfThatSizeIsEnough) {
  const std::uint64_t bytes = planned();
  EXPECT_GT(bytes, kAllowance) << "else nothing held twice would show";
  const MemoryGroup group(bytes + kAllowance);
  const auto words = command("train", {"--tokens", directory_.file("tokens.bin"), "--batch", std::to_string(kBatch),
                                       "--sequence", std::to_string(kSequence), "--steps", "2"});
  const Outcome outcome = run(words, "/dev/null", group.made() ? group.members() : "");
  ASSERT_EQ(outcome.status, 0);
  EXPECT_LT(outcome.resident, bytes + kAllowance);
  EXPECT_GT(outcome.resident, bytes / 2) << "what is planned is used";
  std::printf("[ figures  ] planned %.1f MiB, resident %.1f MiB\n", static_cast<double>(bytes) / 1048576,
              static_cast<double>(outcome.resident) / 1048576);
  if (!group.made()) GTEST_SKIP() << "no control group: this process may make none of the memory controller";
}

INSTANTIATE_TEST_SUITE_P(Plans, ResidentSize, testing::ValuesIn(kCases),
                         [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace protrain::test::resident_size_test
