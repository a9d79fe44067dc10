// The size of a micro-batch that several ranks choose if tokens_per_step is given and the batch size is not.
#include "draft/micro_batch.h"

#include <gtest/gtest.h>

#include "draft/ranked_machine.h"
#include "errors.h"
#include "ranked_training.h"

namespace protrain::test::ranked_micro_batch_test {
namespace {

const std::string kPath = fixture("gpt2-dynamic-opset18.onnx");
constexpr std::int64_t kSequence = 16;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr double kBeta1 = 0.75;

// A machine with this much memory, whose kernels need no scratch. Device and host share the memory.
class SmallMachine final : public draft::TargetMachine {
 public:
  explicit SmallMachine(std::uint64_t memory) : memory_(memory) {}
  profile::Profile profile(const std::vector<const graph::Graph *> &, const backend::Optimizer &optimizer) override {
    EXPECT_EQ(optimizer.beta1, kBeta1) << "the optimizer of the settings is measured";
    profile::Profile profile = profile::known_machine("rtx3090");
    profile.shares_memory = profile.shares_cores = true;
    profile.device_memory = profile.host_memory = memory_;
    return profile;
  }
  program::Workspace workspace(const graph::Graph &graph) override {
    return {.nodes = std::vector<std::uint64_t>(graph.node_count(), 0)};
  }

 private:
  const std::uint64_t memory_;
};

// Returns the size of the micro-batch on which the ranks agree. A step has `samples` samples for each rank. If ranks
// throw, throws the error of the lowest of these ranks.
std::int64_t settled(int ranks, std::uint64_t memory, std::int64_t samples, const std::string &resume = "") {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(ranks));
  const auto errors = ThreadGroup(ranks).run([&](std::shared_ptr<comm::Channel> channel) {
    draft::Settings settings;
    settings.dims["sequence"] = kSequence;
    settings.tokens_per_step = ranks * samples * kSequence;
    settings.resume = resume;
    settings.optimizer.beta1 = kBeta1;
    settings.ranks.rank = channel->rank();
    settings.ranks.count = ranks;
    SmallMachine machine(memory);
    draft::RankedMachine ranked(machine, {.hosts = *channel, .steps = *channel, .on_device = false});
    sizes[static_cast<std::size_t>(channel->rank())] =
        draft::settle_micro_batch(settings, kPath, ranked).value().samples;
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
  for (const std::int64_t size : sizes) EXPECT_EQ(size, sizes[0]);
  return sizes[0];
}

// Each process leaves 96 MiB of memory to other programs. So a single rank can use 202 - 96 = 106 MiB of this machine,
// and each of two ranks can use 202 / 2 - 96 = 5 MiB.
TEST(RankedMicroBatch, FitsTheMemoryThatARankHasOfItsMachine) {
  constexpr std::int64_t kSamples = 128;
  constexpr std::uint64_t kMemory = 202 * kMiB;
  EXPECT_EQ(settled(1, kMemory, kSamples), kSamples);
  EXPECT_LT(settled(2, kMemory, kSamples), kSamples);
  EXPECT_EQ(settled(2, 2 * kMemory, kSamples), kSamples);
}

TEST(RankedMicroBatch, OfACheckpointDividesTheSamplesOfEachRank) {
  const Scratch scratch;
  const Pairs pairs = {{"dim", "sequence=16"}, {"tokens_per_step", "512"}, {"memory", "8MiB"}};
  const auto session = session::Session::create(options_with(pairs), kPath, nullptr);
  const std::int64_t kept = session->input_shape(0)[0];
  ASSERT_GT(kept, 1);
  session->save(scratch.path());
  EXPECT_EQ(settled(2, 1024 * kMiB, 3 * kept, scratch.path()), kept);
  const Error error = error_of([&] { settled(2, 1024 * kMiB, kept + 1, scratch.path()); });
  EXPECT_EQ(error.code, Code::mismatch);
  EXPECT_NE(error.text.find(fmt::format("has {} samples on 2 ranks", 2 * (kept + 1))), std::string::npos) << error.text;
  EXPECT_NE(error.text.find(fmt::format("a multiple of {},", 2 * kept * kSequence)), std::string::npos) << error.text;
}

}  // namespace
}  // namespace protrain::test::ranked_micro_batch_test
