// Checkpoints do not depend on the number of ranks. Three ranks, or one, resume from a checkpoint that four ranks
// saved, and have the bits of a run that never stopped.
#include <gtest/gtest.h>

#include "base/files.h"
#include "ranked_training.h"

namespace protrain::test::ranked_checkpoint_test {
namespace {

constexpr int kMicroBatches = 12, kStepsOfEach = 2;

// Trains from the newest checkpoint in `resume`, or from the beginning if `resume` is empty, and saves. Returns rank
// 0's results.
Trace go_on(int ranks, const std::string &model, Pairs pairs, int first_step, const std::string &resume,
            const std::string &directory) {
  pairs.emplace_back("accumulation", std::to_string(kMicroBatches / ranks));
  if (!resume.empty()) pairs.emplace_back("resume", resume);
  Trace trace;
  const auto errors = ThreadGroup(ranks).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto session = session_of(pairs, model, channel);
    Trace own = train_share(*session, *channel,
                            {.ranks = ranks, .accumulation = kMicroBatches / ranks, .steps = kStepsOfEach}, first_step);
    session->save(directory);
    if (channel->rank() == 0) trace = std::move(own);
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
  return trace;
}

void append(Trace &to, const Trace &from) {
  to.losses.insert(to.losses.end(), from.losses.begin(), from.losses.end());
  to.norms.insert(to.norms.end(), from.norms.begin(), from.norms.end());
  to.parameters = from.parameters;
}

class RankedCheckpoint : public testing::TestWithParam<std::string> {};

TEST_P(RankedCheckpoint, GoesOnWithAnyNumberOfRanksWithTheBitsOfARunThatNeverStopped) {
  const std::string model = "dropout-gpt";
  Pairs pairs = base_options(model);
  pairs.emplace_back("clip_norm", "0.5");
  if (GetParam() == "adamw8bit")
    pairs.insert(pairs.end(), {{"optimizer", GetParam()}, {"ema", "0.9"}});
  else
    pairs.emplace_back("precision", GetParam());
  Trace stopped;
  const Scratch scratch;
  std::string resume;
  int step = 0;
  for (const int ranks : {4, 3, 1, 2, 4}) {
    append(stopped, go_on(ranks, model, pairs, step, resume, scratch.path() + "/checkpoints"));
    resume = scratch.path() + "/checkpoints";
    step += kStepsOfEach;
  }
  pairs.emplace_back("accumulation", std::to_string(kMicroBatches));
  const auto channel = std::shared_ptr(comm::open({}));
  const auto session = session_of(pairs, model, channel);
  const Trace whole = train_share(*session, *channel, {.ranks = 1, .accumulation = kMicroBatches, .steps = step});
  EXPECT_EQ(stopped.losses, whole.losses);
  EXPECT_TRUE(stopped == whole);
}

// Returns the files of the checkpoint that three ranks save after a step. Rank 1 saves to `own_directory`, the others
// to `directory`. Also checks that a single rank that resumes has the same parameters.
std::vector<std::string> files_saved(const std::string &directory, const std::string &own_directory) {
  const std::string model = "gpt2-dynamic-opset18";
  Trace trained, resumed;
  const auto errors = ThreadGroup(3).run([&](std::shared_ptr<comm::Channel> channel) {
    const auto session = session_of(base_options(model), model, channel);
    Trace own = train_share(*session, *channel, {.ranks = 3, .steps = 1});
    EXPECT_EQ(session->save(channel->rank() == 1 ? own_directory : directory), directory + "/step-0000000001");
    if (channel->rank() == 0) trained = std::move(own);
  });
  for (const std::exception_ptr &error : errors)
    if (error) std::rethrow_exception(error);
  Pairs pairs = base_options(model);
  pairs.emplace_back("resume", directory);
  const auto channel = std::shared_ptr(comm::open({}));
  EXPECT_EQ(train_share(*session_of(pairs, model, channel), *channel, {.steps = 0}).parameters, trained.parameters);
  std::vector<std::string> files;
  for (const DirectoryEntry &entry : list_directory(directory + "/step-0000000001")) files.push_back(entry.name);
  return files;
}

TEST(RankedCheckpoints, HaveAPartOfEachRank) {
  const Scratch scratch;
  EXPECT_EQ(files_saved(scratch.path(), scratch.path()),
            (std::vector<std::string>{"manifest.json", "optimizer-00001-of-00003.safetensors",
                                      "optimizer-00002-of-00003.safetensors", "optimizer-00003-of-00003.safetensors",
                                      "weights-00001-of-00003.safetensors", "weights-00002-of-00003.safetensors",
                                      "weights-00003-of-00003.safetensors"}));
}

TEST(RankedCheckpoints, AreOfRankZeroAloneIfTheOthersDoNotSeeItsDirectory) {
  const Scratch scratch;
  EXPECT_EQ(files_saved(scratch.path(), scratch.path() + "/not-here"),
            (std::vector<std::string>{"manifest.json", "optimizer.safetensors", "weights.safetensors"}));
}

INSTANTIATE_TEST_SUITE_P(Forms, RankedCheckpoint, testing::Values("fp32", "bf16", "fp16", "adamw8bit"));

}  // namespace
}  // namespace protrain::test::ranked_checkpoint_test
