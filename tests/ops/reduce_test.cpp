#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::reduce_test {
namespace {

using Integers = std::vector<std::int64_t>;

Attributes over(const Integers &axes, std::int64_t keepdims) { return {{"axes", axes}, {"keepdims", keepdims}}; }

TEST(ReduceOps, GradientsMatchFiniteDifferences) {
  for (const char *op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"})
    for (std::int64_t keepdims : {0, 1}) {
      const Array x = random_doubles({3, 1, 5}, 7);
      for (const Integers &axes : {Integers{0}, Integers{-1}, Integers{0, 2}, Integers{1}, Integers{}})
        expect_gradient({.op = op, .attributes = over(axes, keepdims), .inputs = {x}});
      expect_gradient({.op = op, .attributes = {{"keepdims", keepdims}}, .inputs = {random_doubles({}, 3)}});
      expect_gradient(
          {.op = op, .attributes = {{"keepdims", keepdims}, {"noop_with_empty_axes", std::int64_t{1}}}, .inputs = {x}});
    }
}

TEST(ReduceMaxOp, GradientIsSharedByTies) {
  const Array x = Array::from_doubles({DType::f64, {4}}, {2, 1, 2, 0});
  OneNodeGraph one({.op = "ReduceMax", .attributes = over({0}, 0), .inputs = {x}, .is_loss = true});
  const ValueId gradient = one.differentiate()[0];
  EXPECT_EQ(ops::interpret(one.graph, one.bound)[index(gradient)].doubles(), (std::vector<double>{0.5, 0, 0.5, 0}));
}

TEST(ReduceOps, HaveTheirDefinedValues) {
  const Array x = Array::from_doubles({DType::f64, {2, 2}}, {1, -2, 3, 4});
  const auto expect = [&](const char *op, const std::vector<double> &expected) {
    const std::vector<double> found = evaluate(op, over({1}, 0), {x})[0].doubles();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-14) << op;
  };
  expect("ReduceSum", {-1, 7});
  expect("ReduceMean", {-0.5, 3.5});
  expect("ReduceMax", {1, 4});
  expect("ReduceMin", {-2, 3});
  expect("ReduceProd", {-2, 12});
  expect("ReduceSumSquare", {5, 25});
  expect("ReduceL1", {3, 7});
  expect("ReduceL2", {std::sqrt(5), 5});
  expect("ReduceLogSumExp", {std::log(std::exp(1) + std::exp(-2)), std::log(std::exp(3) + std::exp(4))});
  const std::vector<double> logs =
      evaluate("ReduceLogSum", over({0}, 0), {Array::from_doubles({DType::f64, {2}}, {1, 3})})[0].doubles();
  EXPECT_NEAR(logs[0], std::log(4), 1e-15);
}

TEST(ReduceLogSumExpOp, DoesNotOverflow) {
  const Array x = Array::from_doubles({DType::f64, {2, 2}}, {1000, 1000, -HUGE_VAL, -HUGE_VAL});
  const std::vector<double> found = evaluate("ReduceLogSumExp", over({-1}, 1), {x})[0].doubles();
  EXPECT_NEAR(found[0], 1000 + std::log(2), 1e-12);
  EXPECT_EQ(found[1], -HUGE_VAL);
}

TEST(ReduceOps, KeepIntegersExact) {
  const std::int64_t large = (1ll << 53) + 1;
  const Array x = Array::integers({large, 2, -1});
  EXPECT_EQ(evaluate("ReduceSum", over({0}, 0), {x})[0].integers(), (Integers{large + 1}));
  EXPECT_EQ(evaluate("ReduceMax", over({0}, 0), {x})[0].integers(), (Integers{large}));
  EXPECT_EQ(evaluate("ReduceProd", over({0}, 0), {x})[0].integers(), (Integers{-2 * large}));
  EXPECT_EQ(evaluate("ReduceMean", over({0}, 0), {Array::integers({7, 2})})[0].integers(), (Integers{4}));
}

TEST(ReduceOps, CountRepeatedAxesInFull) {
  const Array x = random_doubles({1, 3, 1}, 1).expanded({4, 3, 1 << 20});
  const Array sum = evaluate("ReduceSum", over({0}, 1), {x})[0];
  EXPECT_EQ(sum.shape(), (Shape{1, 3, 1 << 20}));
  EXPECT_EQ(sum.stored(), (Shape{1, 3, 1}));
  EXPECT_NEAR(sum.stored_double(1), 4 * x.stored_double(1), 1e-14);
}

TEST(ReduceOps, RefuseAxesOutside) {
  EXPECT_EQ(code_of([&] { evaluate("ReduceSum", over({2}, 1), {random_doubles({2, 2}, 1)}); }), Code::shape);
  EXPECT_EQ(code_of([&] {
              evaluate("ReduceSum", {}, {random_doubles({2}, 1), Array::integers({0})});
            }),
            Code::unsupported);
}

TEST(ArgMaxOp, TakesTheFirstOrLastOfEquals) {
  const Array x = Array::from_doubles({DType::f32, {2, 3}}, {1, 5, 5, 2, 2, 0});
  EXPECT_EQ(evaluate("ArgMax", {{"axis", std::int64_t{-1}}, {"keepdims", std::int64_t{0}}}, {x})[0].integers(),
            (Integers{1, 0}));
  EXPECT_EQ(evaluate("ArgMax", {{"axis", std::int64_t{1}}, {"select_last_index", std::int64_t{1}}}, {x})[0].integers(),
            (Integers{2, 1}));
  EXPECT_EQ(evaluate("ArgMin", {}, {x})[0].integers(), (Integers{0, 1, 1}));
}

}  // namespace
}  // namespace protrain::test::reduce_test
