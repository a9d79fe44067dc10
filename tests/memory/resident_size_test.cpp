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

// Small models with large batches take hundreds of MiB, nearly all of them activations.
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

// A control group that limits memory, of version 1 or 2. made() is false if this process may not create one.
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
  std::uint64_t resident = 0, planned = 0;
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

  std::vector<std::string> command() const {
    std::vector<std::string> words = {PROTRAIN_COMMAND, "train", fixture(std::string(GetParam().model) + ".onnx")};
    const auto add = [&](std::initializer_list<std::string> more) { words.insert(words.end(), more); };
    add({"--tokens", directory_.file("tokens.bin"), "--batch", std::to_string(kBatch)});
    add({"--sequence", std::to_string(kSequence), "--steps", "2", "--threads", "2"});
    add({"--plan", directory_.file("plan.json"), "--offload-dir", directory_.file("")});
    add({"--metrics", directory_.file("metrics.jsonl")});
    words.insert(words.end(), GetParam().flags.begin(), GetParam().flags.end());
    return words;
  }

  // Runs the command. `group` is the control group's file of members; "" for no group.
  Outcome run(const std::string &group) const {
    const std::vector<std::string> words = command();
    std::vector<char *> arguments;
    for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
    arguments.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      const int null = open("/dev/null", O_WRONLY), members = open(group.c_str(), O_WRONLY);
      if (!group.empty() && (members < 0 || write(members, "0", 1) != 1)) _exit(99);
      dup2(null, STDOUT_FILENO);
      execv(arguments[0], arguments.data());
      _exit(98);
    }
    Outcome outcome;
    rusage usage{};
    wait4(child, &outcome.status, 0, &usage);
    outcome.resident = static_cast<std::uint64_t>(usage.ru_maxrss) << 10;
    std::ifstream metrics(directory_.file("metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);) {
      const auto json = nlohmann::json::parse(line);
      outcome.planned =
          json.at("device_peak_bytes").get<std::uint64_t>() + json.at("host_peak_bytes").get<std::uint64_t>();
    }
    return outcome;
  }

  Scratch directory_;
};

TEST_P(ResidentSize, StaysBelowWhatWasPlannedAndTheAllowanceAndAControlGroupOfThatSizeIsEnough) {
  const Outcome outcome = run("");
  ASSERT_EQ(outcome.status, 0);
  EXPECT_GT(outcome.planned, kAllowance) << "else nothing held twice would show";
  EXPECT_LT(outcome.resident, outcome.planned + kAllowance);
  EXPECT_GT(outcome.resident, outcome.planned / 2) << "what was planned is used";
  std::printf("[ figures  ] planned %.1f MiB, resident %.1f MiB\n", static_cast<double>(outcome.planned) / 1048576,
              static_cast<double>(outcome.resident) / 1048576);
  const MemoryGroup group(outcome.planned + kAllowance);
  if (!group.made()) GTEST_SKIP() << "no control group: this process may make none of the memory controller";
  EXPECT_EQ(run(group.members()).status, 0);
}

INSTANTIATE_TEST_SUITE_P(Plans, ResidentSize, testing::ValuesIn(kCases),
                         [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace protrain::test::resident_size_test
