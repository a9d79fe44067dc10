#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::batch_norm_test {
namespace {

Array numbers(const std::vector<double> &values) {
  return Array::from_doubles({DType::f64, {static_cast<std::int64_t>(values.size())}}, values);
}

// x, scale, bias and running statistics that differ from the batch's.
std::vector<Array> operands(const Shape &x) {
  const Shape channels = {x[1]};
  return {random_doubles(x, 1, -2, 2), random_doubles(channels, 2), random_doubles(channels, 3),
          random_doubles(channels, 4), random_doubles(channels, 5, 0.5, 2)};
}

TEST(BatchNormOp, GradientMatchesFiniteDifferences) {
  for (const Shape &x : {Shape{4, 3, 2, 3}, Shape{5, 2}, Shape{1, 3, 7}, Shape{2, 1, 2, 2, 2}})
    expect_gradient(
        {.op = "BatchNorm", .attributes = {{"epsilon", 1e-3}}, .inputs = operands(x), .outputs = 4, .fixed = {3, 4}});
}

TEST(BatchNormOp, GivesEachChannelMeanZeroAndVarianceOne) {
  const Array x = Array::from_doubles({DType::f64, {2, 2, 2}}, {1, 3, 0, 0, 5, 7, 8, 8});
  const auto made = evaluate("BatchNorm", {{"epsilon", 0.0}, {"unbiased", std::int64_t{1}}},
                             {x, numbers({5, 2}), numbers({0, 1}), numbers({9, 9}), numbers({9, 9})}, 4);
  EXPECT_EQ(made[1].doubles(), (std::vector<double>{4, 4}));
  EXPECT_EQ(made[2].doubles(), (std::vector<double>{5, 16}));
  EXPECT_EQ(made[3].doubles(), (std::vector<double>{5 * (4.0 / 3), 16 * (4.0 / 3)}));
  const std::vector<double> y = made[0].doubles();
  EXPECT_NEAR(y[0], -3 * std::sqrt(5), 1e-12);
  EXPECT_NEAR(y[2], -1, 1e-12);
  EXPECT_NEAR(y[6], 3, 1e-12);
}

TEST(BatchNormOp, UsesTheRunningStatisticsForAnEvaluation) {
  const Array x = Array::from_doubles({DType::f64, {1, 2, 1}}, {5, 6});
  const auto made = evaluate("BatchNorm", {{"epsilon", 0.0}, {"running", std::int64_t{1}}},
                             {x, numbers({2, 3}), numbers({1, 0}), numbers({1, 4}), numbers({4, 1})}, 4);
  EXPECT_EQ(made[0].doubles(), (std::vector<double>{5, 6}));
}

TEST(BatchNormOp, RefusesOperandsOfOtherSizes) {
  for (std::size_t i = 1; i < 5; ++i) {
    std::vector<Array> wrong = operands({4, 3, 2});
    wrong[i] = random_doubles({4}, 6);
    EXPECT_EQ(code_of([&] { evaluate("BatchNorm", {}, wrong, 4); }), Code::shape) << i;
  }
  EXPECT_EQ(code_of([&] { evaluate("BatchNorm", {}, operands({0, 3, 2}), 4); }), Code::shape);
}

TEST(FoldStatisticsOp, FoldsMicroBatchesInOrderAndApplicationsWithinThem) {
  const Array state = numbers({1, -1}), first = numbers({2, 3, 20, 30}), second = numbers({4, 5, 40, 50});
  const auto made = evaluate("FoldStatistics", {{"momentum", 0.5}, {"parts", std::int64_t{2}}}, {state, first, second});
  EXPECT_EQ(made[0].doubles(),
            (std::vector<double>{((1 * .5 + 1) * .5 + 2) * .25 + 5 + 20, ((-.5 + 1.5) * .5 + 2.5) * .25 + 7.5 + 25}));
}

TEST(FoldStatisticsOp, RefusesStatisticsOfAnotherSize) {
  EXPECT_EQ(code_of([&] { evaluate("FoldStatistics", {}, {numbers({1, 2}), numbers({1, 2, 3})}); }), Code::shape);
  EXPECT_EQ(code_of([&] { evaluate("FoldStatistics", {}, {numbers({1, 2})}); }), Code::graph);
}

}  // namespace
}  // namespace protrain::test::batch_norm_test
