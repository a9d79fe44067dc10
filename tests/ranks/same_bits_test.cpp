// Losses, norms and weights have the same bits on any number of ranks, under every plan. A test with random plans draws
// one plan for each model, for a number of ranks from two to four. With PROTRAIN_PLANS=30 it draws 30 plans for each
// number of ranks from one to four.
#include <gtest/gtest.h>

#include <map>

#include "asked.h"
#include "grad/training.h"
#include "ranked_training.h"

namespace protrain::test::ranked_bits_test {
namespace {

constexpr int kMicroBatches = 12;  // of a step: a multiple of every number of ranks

class SameBitsOnRanks : public testing::TestWithParam<std::string> {
 protected:
  graph::Graph training_graph() const {
    const Pairs pairs = base_options(GetParam());
    draft::LoadedModel loaded =
        draft::load_model(draft::settings_of(options_with(pairs)), fixture(GetParam() + ".onnx"));
    return grad::build(std::move(loaded.prepared.graph), loaded.loss).graph;
  }

  Pairs with(const Pairs &more) const {
    Pairs pairs = base_options(GetParam());
    pairs.insert(pairs.end(), more.begin(), more.end());
    return pairs;
  }

  void expect_same(const Group &group, const Pairs &more, const Trace &expected, const std::string &how) const {
    try {
      const std::vector<Trace> traces = train_ranks(group, with(more), GetParam());
      for (std::size_t r = 0; r < traces.size(); ++r) {
        EXPECT_EQ(traces[r].losses, expected.losses) << "rank " << r << " of " << group.ranks << how;
        EXPECT_EQ(traces[r].norms, expected.norms) << "rank " << r << " of " << group.ranks << how;
        ASSERT_TRUE(traces[r] == expected) << "rank " << r << " of " << group.ranks << how;
      }
    } catch (const Error &error) {
      FAIL() << error.text << " (" << error.subject << ") " << group.ranks << " ranks" << how;
    }
  }

  Trace of_one_rank(const Pairs &more, int micro_batches = kMicroBatches) const {
    return train_ranks({.ranks = 1, .accumulation = micro_batches}, with(more), GetParam()).front();
  }

  static Group group_of(int ranks) { return {.ranks = ranks, .accumulation = kMicroBatches / ranks}; }

  // Returns, for each plan that is to be drawn, a number of ranks.
  static std::vector<int> drawn_ranks(Draw &draw) {
    const std::uint64_t plans = asked("PROTRAIN_PLANS", 0);
    if (plans == 0) return {2 + draw.below(3)};
    std::vector<int> ranks;
    for (std::uint64_t i = 0; i < 4 * plans; ++i) ranks.push_back(1 + static_cast<int>(i % 4));
    return ranks;
  }

  // A random plan in which chunks on the device are whole or sharded.
  static plan::Plan plan_for(Draw &draw, const graph::Graph &graph, int ranks, plan::OptimizerOrder order) {
    plan::Plan plan = draw.plan(graph, order);
    plan.ranks = ranks;
    for (plan::Chunk &chunk : plan.chunks)
      chunk.sharded = ranks > 1 && (chunk.tier != Tier::device || draw.chance(0.5));
    return plan;
  }

  void compare(const Pairs &settings) const {
    const graph::Graph graph = training_graph();
    const Trace expected = of_one_rank(settings);
    const std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
    Draw draw(std::hash<std::string>{}(test + GetParam()) & 0xFFFF);
    for (const int ranks : drawn_ranks(draw)) {
      const Scratch scratch;
      const plan::Plan plan = plan_for(draw, graph, ranks, plan::OptimizerOrder::barrier);
      Pairs pairs = following(plan, scratch);
      pairs.insert(pairs.end(), settings.begin(), settings.end());
      const Pairs trial = draw.trial();
      pairs.insert(pairs.end(), trial.begin(), trial.end());
      expect_same(group_of(ranks), pairs, expected, " plan " + plan::to_json(plan));
      if (HasFatalFailure()) return;
    }
  }
};

// If a step has one micro-batch for each rank, gradients are not accumulated over micro-batches. So updates may run as
// soon as their gradients are there, or be deferred to the next step.
TEST_P(SameBitsOnRanks, WithOneMicroBatchEachInEveryOrderOfUpdates) {
  const graph::Graph graph = training_graph();
  Draw draw(std::hash<std::string>{}(GetParam()) & 0xFFF);
  for (const std::string precision : {"fp32", "bf16"}) {
    const Pairs settings = {{"precision", precision}};
    std::map<int, Trace> expected;  // by the number of ranks, which is that of micro-batches too
    for (const int ranks : drawn_ranks(draw)) {
      if (!expected.contains(ranks)) expected[ranks] = of_one_rank(settings, ranks);
      const Scratch scratch;
      plan::Plan plan = plan_for(draw, graph, ranks, draw.order());
      if (draw.chance(0.4)) plan = draw.deferring(std::move(plan));
      Pairs pairs = following(plan, scratch);
      pairs.insert(pairs.end(), settings.begin(), settings.end());
      const Pairs trial = draw.trial();
      pairs.insert(pairs.end(), trial.begin(), trial.end());
      expect_same({.ranks = ranks}, pairs, expected[ranks], " plan " + plan::to_json(plan));
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(SameBitsOnRanks, UnderTheSearchedPlan) {
  const Trace expected = of_one_rank({});
  for (const int ranks : {2, 3, 4}) expect_same(group_of(ranks), {}, expected, "");
}

TEST_P(SameBitsOnRanks, UnderRandomPlans) { compare({}); }

TEST_P(SameBitsOnRanks, WithClippingToo) { compare({{"clip_norm", "0.5"}}); }

TEST_P(SameBitsOnRanks, InBfloat16Too) { compare({{"precision", "bf16"}}); }

INSTANTIATE_TEST_SUITE_P(Models, SameBitsOnRanks, testing::ValuesIn(kModels), model_name);

// Tests with settings whose effect does not depend on the model, so fewer models are enough.
class SameBitsOnRanksToo : public SameBitsOnRanks {};

TEST_P(SameBitsOnRanksToo, InBfloat16WithClipping) {
  compare({{"clip_norm", "0.5"}, {"precision", "bf16"}, {"on_nonfinite", "skip"}});
}

TEST_P(SameBitsOnRanksToo, InFloat16) { compare({{"precision", "fp16"}}); }

TEST_P(SameBitsOnRanksToo, WithMomentsInEightBits) {
  compare({{"optimizer", "adamw8bit"}, {"ema", "0.9"}, {"precision", "bf16"}});
}

INSTANTIATE_TEST_SUITE_P(Models, SameBitsOnRanksToo,
                         testing::Values("gpt2-dynamic-opset18", "dropout-gpt", "batch-norm"), model_name);

}  // namespace
}  // namespace protrain::test::ranked_bits_test
