// Golden Programs of a model of two small blocks. Each Program shows one choice that a plan can make.
// tests/fixtures/programs holds the Programs as text.
#include "hand_built.h"

namespace protrain::program::goldens_test {
namespace {

using plan::BlockMode;
using plan::OptimizerOrder;

void expect_sound_golden(const std::string &name, const TwoBlocks &model, const Program &program) {
  EXPECT_NO_THROW(verify(program));
  expect_golden(name, print(program, model.graph));
}

TEST(Goldens, ABlockThatRecomputesRunsItsForwardNodesAgain) {
  const TwoBlocks model;
  expect_sound_golden("recompute", model, model.lowered(model.plan(Tier::device, BlockMode::recompute)));
}

TEST(Goldens, ABlockThatSwapsSendsItsActivationsToTheHostAndBack) {
  const TwoBlocks model;
  expect_sound_golden("swap", model, model.lowered(model.plan(Tier::device, BlockMode::swap)));
}

TEST(Goldens, WeightsOnTheHostAreFetchedAndUpdatedThere) {
  const TwoBlocks model;
  expect_sound_golden("offloaded", model, model.lowered(model.plan(Tier::host, BlockMode::keep)));
}

TEST(Goldens, WeightsOnDiskPassThroughTheHost) {
  const TwoBlocks model;
  expect_sound_golden("disk", model, model.lowered(model.plan(Tier::disk, BlockMode::keep)));
}

TEST(Goldens, TheOptimizerGoesThroughALargeParameterInPiecesOneAhead) {
  const TwoBlocks model;
  plan::Plan plan = model.plan(Tier::disk, BlockMode::keep);
  plan.shared_memory = true;
  plan.chunks[0].update = plan.chunks[1].update = Tier::device;
  plan.piece_bytes = TwoBlocks::kElements * sizeof(float) / 2;
  expect_sound_golden("pieces", model, model.lowered(plan));
}

TEST(Goldens, TheBarrierKeepsGradientsUntilTheNormIsKnown) {
  const TwoBlocks model;
  plan::Plan plan = model.plan(Tier::host, BlockMode::keep, OptimizerOrder::barrier);
  plan.chunks[0].tier = plan.chunks[0].update = Tier::device;
  expect_sound_golden("barrier", model, model.lowered(plan));
}

plan::Plan deferring(plan::Plan plan) {
  for (plan::Chunk &chunk : plan.chunks) chunk.deferred = true;
  return plan;
}

TEST(Goldens, DeferredUpdatesComeBeforeTheirChunksAreUsed) {
  const TwoBlocks model;
  plan::Plan plan = deferring(model.plan(Tier::host, BlockMode::keep, OptimizerOrder::barrier));
  plan.chunks[0].tier = plan.chunks[0].update = Tier::device;
  expect_sound_golden("deferred", model, model.lowered(plan));
  plan.chunks[1].update = Tier::device;
  expect_sound_golden("deferred-device", model, model.lowered(plan));
}

TEST(Goldens, UpdatesOfSomeChunksAloneAreDeferred) {
  const TwoBlocks model;
  plan::Plan plan = model.plan(Tier::host, BlockMode::keep);
  plan.chunks[0].deferred = true;
  expect_sound_golden("deferred-some", model, model.lowered(plan));
  expect_sound_golden("settlement-some", model, model.lowered(settlement(model.step()), plan));
}

TEST(Goldens, DeferredUpdatesCanRunAlone) {
  const TwoBlocks model;
  const plan::Plan plan = deferring(model.plan(Tier::disk, BlockMode::keep, OptimizerOrder::barrier));
  expect_sound_golden("settlement", model, model.lowered(settlement(model.step()), plan));
}

// In this model one node computes the norms of both gradients, so a single instruction checks both norms. Therefore the
// parameters that are updated on the same side (device or host) share one update.
TEST(Goldens, ParametersWhoseNormsAreMadeAtOnceAreUpdatedTogether) {
  TwoBlocks model;
  model.norm_at_once();
  expect_sound_golden("together", model, model.lowered(model.plan(Tier::device, BlockMode::keep)));
  expect_sound_golden("together_offloaded", model, model.lowered(model.plan(Tier::host, BlockMode::keep)));
  plan::Plan plan = model.plan(Tier::device, BlockMode::keep);
  plan.chunks[0].tier = plan.chunks[0].update = Tier::host;
  const Program mixed = model.lowered(plan);
  EXPECT_NO_THROW(verify(mixed));
  const auto updates =
      std::ranges::count_if(mixed.instructions, [](const Instruction &i) { return i.kind == Kind::update; });
  EXPECT_EQ(updates, 2);
}

TEST(Goldens, AnEvaluationHasNoBackward) {
  const TwoBlocks model;
  expect_sound_golden("evaluation", model,
                      model.lowered(model.evaluation(), model.plan(Tier::host, BlockMode::recompute)));
}

}  // namespace
}  // namespace protrain::program::goldens_test
