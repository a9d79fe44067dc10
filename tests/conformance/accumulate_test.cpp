// CountTargets, GradientScale and ScaledNorm.
#include <cmath>

#include "conformance/contest.h"

namespace protrain::test::accumulate_test {
namespace {

PROTRAIN_FAMILY(CountTargetsKernel);
PROTRAIN_FAMILY(GradientScaleKernel);
PROTRAIN_FAMILY(LossScaleKernel);

TEST_P(CountTargetsKernel, CountsLabelsThatAreNotIgnored) {
  expect_reference({"CountTargets", {}, {random_integers({37}, 1, 0, 5)}}, 0);
  expect_reference({"CountTargets", {{"ignore_index", std::int64_t{2}}}, {random_integers({4, 9}, 2, 0, 5)}}, 0);
}

TEST_P(GradientScaleKernel, DividesByTheWeightsAndCutsToTheNorm) {
  const Array norm = Array::scalar(DType::f64, 4), weights = Array::scalar(DType::f64, 16);
  for (double most : {0.0, 0.5, 3.9, 4.1}) {
    expect_reference({"GradientScale", {{"max_norm", most}}, {norm}}, 1e-7);
    expect_reference({"GradientScale", {{"max_norm", most}}, {norm, weights}}, 1e-7);
  }
  expect_reference({"ScaledNorm", {}, {norm, weights}}, 0);
}

TEST_P(LossScaleKernel, IsTheStepsOwn) {
  const OneNode node{"LossScale", {}, {}};
  expect_reference(node, 0);
  NodeBench bench(node, *GetParam()->ways[0].machine);
  bench.run({.loss_scale = 4096});
  EXPECT_EQ(bench.results()[0].doubles()[0], 4096);
}

}  // namespace
}  // namespace protrain::test::accumulate_test
