#include "conformance/contest.h"

namespace protrain::test::batch_norm_test {
namespace {

PROTRAIN_FAMILY(BatchNormKernel);
PROTRAIN_FAMILY(BatchNormGradKernel);
PROTRAIN_FAMILY(FoldStatisticsKernel);

// Few channels and many, short rows and long ones, rows that are cut into runs.
const Shape kShapes[] = {{2, 1},        {9, 130},        {3, 5, 7},      {5, 3, 8, 8},       {17, 2, 11},
                         {4, 70, 3, 3}, {1, 3, 70, 130}, {2, 67, 9, 11}, {3, 2, 2, 3, 5, 4}, {1, 4, 1, 1, 65}};

OneNode batch_norm(const Shape &x, const Attributes &attributes = {}) {
  const Shape channels = {x[1]};
  return {"BatchNorm",
          attributes,
          {random_floats(x, 1, -2, 3), random_floats(channels, 2, 0.5, 2), random_floats(channels, 3),
           random_floats(channels, 4), random_floats(channels, 5, 0.5, 2)},
          {true, true, true, true}};
}

TEST_P(BatchNormKernel, MatchesTheReferenceWhateverTheTeam) {
  for (const Shape &x : kShapes)
    for (const Attributes &attributes : {Attributes{}, Attributes{{"unbiased", std::int64_t{1}}, {"epsilon", 1e-3}},
                                         Attributes{{"running", std::int64_t{1}}}})
      expect_reference(batch_norm(x, attributes), 5e-5);
}

TEST_P(BatchNormKernel, AMeanFarFromZeroDoesNotSpoilTheVariance) {
  for (const Shape &x : {Shape{4, 3, 257}, Shape{300, 3}}) {
    OneNode one = batch_norm(x);
    one.inputs[0] = random_floats(x, 8, 1000, 1001);
    one.outputs = {true, false, true, true};
    expect_reference(one, 1e-3);
  }
}

OneNode gradient(const Shape &x, const std::vector<bool> &outputs) {
  const OneNode forward = batch_norm(x);
  const std::vector<Array> y = reference(forward);
  return {"BatchNormGrad", {}, {random_floats(x, 6), forward.inputs[0], forward.inputs[1], y[1], y[2]}, outputs};
}

TEST_P(BatchNormGradKernel, MatchesTheReferenceWhateverTheTeam) {
  for (const Shape &x : kShapes) expect_reference(gradient(x, {true, true, true}), 1e-4);
}

TEST_P(BatchNormGradKernel, GradientsThatNobodyWantsAreSkipped) {
  for (int wanted = 1; wanted < 8; ++wanted)
    expect_reference(gradient({5, 3, 8, 8}, {(wanted & 1) != 0, (wanted & 2) != 0, (wanted & 4) != 0}), 1e-4);
}

TEST_P(FoldStatisticsKernel, MatchesTheReference) {
  for (const std::int64_t count : {1, 7, 130})
    for (const std::int64_t parts : {1, 3}) {
      const auto statistic = [&](unsigned seed) { return random_floats({count * parts}, seed); };
      expect_reference({"FoldStatistics",
                        {{"momentum", 0.9}, {"parts", parts}},
                        {random_floats({count}, 1), statistic(2), statistic(3)}});
    }
}

// In the first micro-batch of a step the kernel starts from the running statistics (`state`), in later micro-batches
// from the sum so far (`sum`). It never changes `state`.
TEST_P(FoldStatisticsKernel, GoesOnFromTheSumAfterTheFirstMicroBatch) {
  if (!GetParam()->computes_in(DType::f32)) GTEST_SKIP();
  const Array sum = floats({3}, {1, 2, 3}), state = floats({3}, {10, 20, 30}), statistic = floats({3}, {2, 4, 6});
  const OneNode one{"AccumulateStatistics", {{"momentum", 0.5}}, {sum, state, statistic}};
  for (const Contender::Way &way : GetParam()->ways) {
    if (way.prepare != nullptr) way.prepare();
    NodeBench bench(one, *way.machine);
    bench.run();
    EXPECT_EQ(bench.results()[0].doubles(), (std::vector<double>{6, 12, 18})) << way.name;
    backend::StepScalars second;
    second.micro_batch = 1;
    bench.run(second);
    EXPECT_EQ(bench.results()[0].doubles(), (std::vector<double>{4, 8, 12})) << way.name;
  }
}

}  // namespace
}  // namespace protrain::test::batch_norm_test
