#include "program/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hand_built.h"
#include "program/owners.h"
#include "program/storage.h"

namespace protrain::program::timeline_test {
namespace {

constexpr std::size_t kAll = 1 << 20;

const TwoBlocks &model() {
  static const TwoBlocks two;
  return two;
}

std::vector<plan::Plan> plans() {
  std::vector<plan::Plan> all;
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk})
    for (const plan::BlockMode mode :
         {plan::BlockMode::keep, plan::BlockMode::recompute, plan::BlockMode::swap, plan::BlockMode::selective})
      for (const plan::OptimizerOrder order : {plan::OptimizerOrder::overlap, plan::OptimizerOrder::barrier})
        all.push_back(model().plan(tier, mode, order));
  return all;
}

Simulation simulated(const Program &program) {
  const std::vector<std::int64_t> ns(program.instructions.size(), 10);
  return simulate(program, ns, Beside{false, true, true, true, true, true, true});
}

std::uint64_t peak(const Simulation &simulation, Tier tier) {
  std::uint64_t bytes = 0;
  for (const Entry &entry : simulation.entries) bytes = std::max(bytes, entry.live_bytes[tier]);
  return bytes;
}

std::uint64_t peak(const std::vector<TimelinePoint> &points) {
  std::uint64_t bytes = 0;
  for (const TimelinePoint &point : points) bytes = std::max(bytes, total(point.bytes));
  return bytes;
}

// The most bytes that the owner holds in the tier at any time.
std::uint64_t most(const Timeline &timeline, Tier tier, Owner owner) {
  std::uint64_t bytes = 0;
  for (const TimelinePoint &point : timeline[tier]) bytes = std::max(bytes, point.bytes[owner]);
  return bytes;
}

Timeline drawn(const plan::Plan &plan) {
  const Program program = model().lowered(plan);
  return timeline(program, spans_of(simulated(program)), kAll);
}

TEST(Timeline, PeaksWhereTheSimulatorsBooksPeakInEveryTierUnderEveryPlan) {
  for (const plan::Plan &plan : plans()) {
    SCOPED_TRACE(plan::to_json(plan));
    const Program program = model().lowered(plan);
    const Simulation simulation = simulated(program);
    for (const std::size_t points : {std::size_t{4}, std::size_t{10}, kAll})
      for (const Tier t : kTiers)
        EXPECT_EQ(peak(timeline(program, spans_of(simulation), points)[t]), peak(simulation, t)) << points;
  }
}

TEST(Timeline, PeaksThereWhateverTheSpansSay) {
  const Program program = model().lowered(model().plan(Tier::host, plan::BlockMode::swap));
  const std::vector<Span> none(program.instructions.size());
  EXPECT_EQ(peak(timeline(program, none, 4)[Tier::device]), peak(simulated(program), Tier::device));
}

TEST(Timeline, RunsForwardInTimeAndHasNoMorePointsThanAskedFor) {
  for (const plan::Plan &plan : plans()) {
    const Program program = model().lowered(plan);
    for (const std::vector<TimelinePoint> &points : timeline(program, spans_of(simulated(program)), 8)) {
      EXPECT_LE(points.size(), 8u);
      EXPECT_TRUE(std::ranges::is_sorted(points, {}, &TimelinePoint::at_ns));
    }
  }
}

TEST(Timeline, HasNoPointsForATierThatIsNotUsed) {
  const Timeline timeline = drawn(model().plan(Tier::device, plan::BlockMode::keep));
  EXPECT_FALSE(timeline[Tier::device].empty());
  EXPECT_TRUE(timeline[Tier::host].empty());
  EXPECT_TRUE(timeline[Tier::disk].empty());
}

TEST(Timeline, EndsWithWhatOutlivesTheStepAndItsResults) {
  const Program program = model().lowered(model().plan(Tier::host, plan::BlockMode::keep));
  const Timeline timeline = program::timeline(program, spans_of(simulated(program)), kAll);
  EXPECT_EQ(total(timeline[Tier::host].back().bytes), program.state_bytes[Tier::host]);
  std::uint64_t results = 0;
  for (BufferId id : {program.loss, program.norm, program.squared_norms[0], program.squared_norms[1]})
    results += program.buffers[index(id)].bytes;
  EXPECT_EQ(total(timeline[Tier::device].back().bytes), program.state_bytes[Tier::device] + results);
}

TEST(Owners, OfResidentStateAreWeightsAndOptimizer) {
  const Timeline timeline = drawn(model().plan(Tier::device, plan::BlockMode::keep));
  EXPECT_EQ(most(timeline, Tier::device, Owner::weights), 128u);
  EXPECT_EQ(most(timeline, Tier::device, Owner::optimizer), 128u);
  EXPECT_EQ(most(timeline, Tier::device, Owner::inputs), 64u);
  EXPECT_EQ(most(timeline, Tier::device, Owner::gradients), 64u);
  EXPECT_EQ(most(timeline, Tier::device, Owner::recomputed), 0u);
}

TEST(Owners, OfACopyAreThoseOfWhatItCopies) {
  const Timeline timeline = drawn(model().plan(Tier::disk, plan::BlockMode::keep));
  EXPECT_EQ(most(timeline, Tier::device, Owner::weights), 64u) << "one chunk at a time";
  EXPECT_EQ(most(timeline, Tier::device, Owner::optimizer), 0u);
  EXPECT_GT(most(timeline, Tier::host, Owner::weights), 0u);
  EXPECT_GT(most(timeline, Tier::host, Owner::optimizer), 0u);
  EXPECT_GT(most(timeline, Tier::host, Owner::gradients), 0u);
}

TEST(Owners, TellWhatIsComputedAgainFromWhatWasKept) {
  const Timeline kept = drawn(model().plan(Tier::device, plan::BlockMode::keep));
  const Timeline again = drawn(model().plan(Tier::device, plan::BlockMode::recompute));
  EXPECT_GT(most(again, Tier::device, Owner::recomputed), 0u);
  EXPECT_LT(most(again, Tier::device, Owner::activations), most(kept, Tier::device, Owner::activations));
}

TEST(Owners, OfWhatIsSwappedAreActivations) {
  const Timeline timeline = drawn(model().plan(Tier::device, plan::BlockMode::swap));
  EXPECT_EQ(most(timeline, Tier::host, Owner::activations), 128u);
}

TEST(Owners, OfContributionsToATiedParameterAreGradients) {
  TwoBlocks two;
  const graph::ValueId sum =
      run(two.graph, {.op = "Add", .name = "sum", .inputs = {two.gradients[0], two.gradients[1]}}, {16});
  const LoweringInput source{.graph = two.graph, .gradients = {sum}};
  const std::vector<Owner> of = owners(source, storage_roots(two.graph));
  for (const graph::ValueId id : {sum, two.gradients[0], two.gradients[1]})
    EXPECT_EQ(of[graph::index(id)], Owner::gradients);
  EXPECT_EQ(of[graph::index(two.squared[0])], Owner::activation_gradients);
  EXPECT_EQ(of[graph::index(two.tanh[0])], Owner::activations);
}

}  // namespace
}  // namespace protrain::program::timeline_test
