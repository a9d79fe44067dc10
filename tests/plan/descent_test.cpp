// Descents through plans whose costs are made up, so that it is known which steps help.
#include "plan/descent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "plan/layers.h"

namespace protrain::plan::descent_test {
namespace {

constexpr int kLayers = 12;

// A model of equal layers whose plans have made-up costs, and a descent through these plans.
class MadeUp {
 public:
  MadeUp(std::function<double(const Plan &)> seconds, std::function<std::uint64_t(const Plan &)> bytes)
      : durations_(machine_, layers_.graph, layers_.terms.optimizer),
        outline_(layers_.graph, durations_),
        space_(space_of(layers_.graph, outline_, durations_, layers_.terms)),
        lay_out_([=](const Plan &plan) {
          return PlanCost{.bytes = {bytes(plan), 0, 0}, .seconds = seconds(plan), .instructions = 1};
        }),
        trials_(layers_.graph, lay_out_) {}

  // Descends from `start`. The device has as much memory as `start` takes. Returns the fastest plan that fits.
  Trial descended_from(Choice start, std::size_t most = 10'000, const LookAhead &look_ahead = {}) {
    start.chunk_bytes = space_.chunk_bytes.front();  // a chunk for each layer
    start.n_host = kLayers;
    start.n_device_update = -1;
    const Trial &first = trials_.add({start, {}});
    layers_.terms.capacity = first.cost.bytes;
    Descent(layers_.graph, space_, layers_.terms, trials_, look_ahead, most).from(start);
    const Trial *best = &first;
    for (const Trial &trial : trials_.all())
      if (fits(trial.cost.bytes, layers_.terms.capacity) && trial.cost.seconds < best->cost.seconds) best = &trial;
    return *best;
  }
  std::size_t instructions() const { return trials_.instructions(); }
  std::vector<Choice> tried() const {
    std::vector<Choice> choices;
    for (const Trial &trial : trials_.all()) choices.push_back(trial.candidate.choice);
    return choices;
  }

 private:
  Layers layers_{kLayers};
  const profile::Profile machine_ = layers_.machine();
  const Durations durations_;
  const Outline outline_;
  const Space space_;
  const LayOut lay_out_;
  Trials trials_;
};

TEST(Descent, TakesStepsThatHelpUntilNoneDoes) {
  MadeUp made_up([](const Plan &plan) { return 10.0 + std::abs(plan.n_buffer - 10); },
                 [](const Plan &) { return 100; });
  EXPECT_EQ(made_up.descended_from({.n_buffer = 2}).candidate.choice.n_buffer, 10);
}

TEST(Descent, EndsAfterTheInstructionsThatItMayLayOut) {
  MadeUp made_up([](const Plan &plan) { return 10.0 - plan.n_buffer; }, [](const Plan &) { return 100; });
  made_up.descended_from({.n_buffer = 1}, 4);
  EXPECT_EQ(made_up.instructions(), 4u);
}

// In this test, a step is faster if a block swaps and recomputes nothing. In the start all blocks recompute, so no
// block can begin to swap unless it stops recomputing.
TEST(Descent, LetsABlockSwapInsteadOfRecomputing) {
  MadeUp made_up(
      [](const Plan &plan) {
        const bool all = plan.n_swap + plan.n_checkpoint == kLayers;
        return all ? 10.0 + std::abs(plan.n_swap - 2) : 20.0;
      },
      [](const Plan &) { return 100; });
  const Choice found = made_up.descended_from({.n_buffer = 2, .n_checkpoint = kLayers}).candidate.choice;
  EXPECT_EQ(found.n_swap, 2);
  EXPECT_EQ(found.n_checkpoint, kLayers - 2);
}

// In this test, a block that keeps everything makes the plan too large. In the start all blocks recompute. Blocks that
// stop recomputing everything must go on recomputing their cheap values.
TEST(Descent, RecomputesCheapValuesOfBlocksThatNoLongerRecomputeAll) {
  MadeUp made_up([](const Plan &plan) { return 10.0 + plan.n_checkpoint; },
                 [](const Plan &plan) {
                   const int kept = kLayers - plan.n_swap - plan.n_checkpoint - plan.n_selective;
                   return kept > 0 ? 200 : 100;
                 });
  const Choice found = made_up.descended_from({.n_buffer = 2, .n_checkpoint = kLayers}).candidate.choice;
  EXPECT_EQ(found.n_checkpoint, 0);
  EXPECT_EQ(found.n_selective, kLayers);
}

// The look-ahead of this test runs its tasks in reverse order. The descent must still try the same plans as without a
// look-ahead. When the descent lays out a plan, a task must have laid out the same plan before. The only exception is
// the plan where the descent begins.
TEST(Descent, TriesTheSamePlansAfterALookAhead) {
  const auto seconds = [](const Plan &plan) {
    return 20.0 + std::abs(plan.n_buffer - 5) + std::abs(plan.n_persist - 4) - (plan.n_persist == 4 ? 0.5 : 0);
  };
  const auto bytes = [](const Plan &plan) { return 100u + static_cast<unsigned>(plan.n_persist) / 8; };
  MadeUp alone(seconds, bytes);
  const Trial expected = alone.descended_from({.n_buffer = 2});
  std::vector<Plan> ahead, late;
  bool looks = false;
  const auto noted = [&](const Plan &plan) {
    if (looks || std::ranges::find(ahead, plan) == ahead.end()) (looks ? ahead : late).push_back(plan);
    return seconds(plan);
  };
  MadeUp after(noted, bytes);
  std::size_t successes = 0;
  const Trial found = after.descended_from({.n_buffer = 2}, 10'000, [&](std::size_t count, const Task &task) {
    looks = true;
    for (std::size_t number = count; number-- > 0;) successes += task(number) ? 1 : 0;
    looks = false;
  });
  EXPECT_TRUE(same_integers(found.candidate.choice, expected.candidate.choice));
  EXPECT_TRUE(std::ranges::equal(after.tried(), alone.tried(), same_integers));
  EXPECT_GT(successes, 0u) << "a task says whether its choice leads to a faster plan";
  EXPECT_EQ(late.size(), 1u) << "only the plan where the descent begins";
}

}  // namespace
}  // namespace protrain::plan::descent_test
