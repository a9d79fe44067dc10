#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::along_axis_test {
namespace {

using Integers = std::vector<std::int64_t>;

TEST(CumSumOp, GradientRunsTheOtherWay) {
  for (std::int64_t axis : {0, 1})
    for (std::int64_t exclusive : {0, 1})
      for (std::int64_t reverse : {0, 1})
        expect_gradient(
            {"CumSum", {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}}, {random_doubles({3, 5}, 1)}});
}

TEST(TopKOp, FindsTheFirstOfEqualElements) {
  const Array x = Array::from_doubles({DType::f32, {5}}, {2, 7, 7, 1, 2});
  const std::vector<Array> most = evaluate("TopK", {{"k", std::int64_t{3}}}, {x}, 2);
  EXPECT_EQ(most[0].doubles(), (std::vector<double>{7, 7, 2}));
  EXPECT_EQ(most[1].integers(), (Integers{1, 2, 0}));
  const std::vector<Array> least = evaluate("TopK", {{"k", std::int64_t{2}}, {"largest", std::int64_t{0}}}, {x}, 2);
  EXPECT_EQ(least[1].integers(), (Integers{3, 0}));
}

TEST(TopKOp, GradientGoesBackToWhereTheValuesWere) {
  for (std::int64_t axis : {0, 1})
    expect_gradient({"TopK", {{"axis", axis}, {"k", std::int64_t{2}}}, {random_doubles({4, 5}, 2)}, 2});
}

TEST(TopKOp, RefusesMoreThanThereAre) {
  EXPECT_EQ(code_of([&] { evaluate("TopK", {{"k", std::int64_t{6}}}, {random_doubles({5}, 1)}, 2); }), Code::shape);
}

TEST(GatherGradOp, IsDifferentiatedByReading) {
  expect_gradient({"GatherGrad",
                   {{"axis", std::int64_t{1}}, {"shape", Integers{2, 4}}},
                   {random_doubles({2, 3, 2}, 3), random_indices({3, 2}, 4, 0, 4)}});
  expect_gradient({"GatherElementsGrad",
                   {{"axis", std::int64_t{1}}, {"shape", Integers{2, 4}}},
                   {random_doubles({2, 3}, 5), random_indices({2, 3}, 6, 0, 4)}});
}

}  // namespace
}  // namespace protrain::test::along_axis_test
