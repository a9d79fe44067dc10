// With rank_sums=local each rank adds the gradients of its own micro-batches. Losses and weights equal those of the
// default except for rounding, and have the same bits on all ranks and in every run.
#include <gtest/gtest.h>

#include "grad/training.h"
#include "ranked_training.h"

namespace protrain::test::local_sums_test {
namespace {

constexpr int kRanks = 3, kAccumulation = 4;

class LocalSums : public testing::TestWithParam<std::string> {
 protected:
  Pairs options(const std::string &sums, const Pairs &more = {}) const {
    Pairs pairs = base_options(kModel);
    pairs.insert(pairs.end(), {{"precision", GetParam()}, {"clip_norm", "0.5"}, {"rank_sums", sums}});
    pairs.insert(pairs.end(), more.begin(), more.end());
    return pairs;
  }
  std::vector<Trace> train(const Pairs &pairs) const {
    return train_ranks({.ranks = kRanks, .accumulation = kAccumulation}, pairs, kModel);
  }

  const std::string kModel = "gpt2-dynamic-opset18";
};

double norm_of(std::uint64_t bits) { return std::bit_cast<double>(bits); }

TEST_P(LocalSums, FollowTheOrderedOnesToRounding) {
  const std::vector<Trace> local = train(options("local"));
  const Trace ordered = train(options("ordered")).front();
  for (const Trace &trace : local) EXPECT_TRUE(trace == local.front());
  EXPECT_EQ(local[0].losses.front(), ordered.losses.front());
  EXPECT_NE(local[0].norms, ordered.norms) << "the sums have the order of the default";
  for (std::size_t i = 0; i < ordered.losses.size(); ++i) {
    const float loss = std::bit_cast<float>(ordered.losses[i]);
    EXPECT_NEAR(std::bit_cast<float>(local[0].losses[i]), loss, 1e-4 * loss) << i;
    EXPECT_NEAR(norm_of(local[0].norms[i]), norm_of(ordered.norms[i]), 1e-4 * norm_of(ordered.norms[i])) << i;
  }
}

// The plan must not change the bits, and another run must give the same bits again.
TEST_P(LocalSums, HaveTheSameBitsUnderEveryPlan) {
  const Trace expected = train(options("local")).front();
  draft::LoadedModel loaded =
      draft::load_model(draft::settings_of(options_with(base_options(kModel))), fixture(kModel + ".onnx"));
  const graph::Graph graph = grad::build(std::move(loaded.prepared.graph), loaded.loss).graph;
  Draw draw(5);
  for (int i = 0; i < 3; ++i) {
    plan::Plan plan = draw.plan(graph, plan::OptimizerOrder::barrier);
    plan.ranks = kRanks;
    for (plan::Chunk &chunk : plan.chunks) chunk.sharded = chunk.tier != Tier::device || draw.chance(0.5);
    const Scratch scratch;
    for (const Trace &trace : train(options("local", following(plan, scratch))))
      EXPECT_TRUE(trace == expected) << plan::to_json(plan);
  }
}

TEST_P(LocalSums, OfASingleRankAreTheOrderedOnes) {
  const Group alone = {.ranks = 1, .accumulation = kRanks};
  EXPECT_TRUE(train_ranks(alone, options("local"), kModel) == train_ranks(alone, options("ordered"), kModel));
}

INSTANTIATE_TEST_SUITE_P(Precisions, LocalSums, testing::Values("fp32", "bf16", "fp16"));

}  // namespace
}  // namespace protrain::test::local_sums_test
