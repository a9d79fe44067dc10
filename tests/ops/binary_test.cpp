#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::binary_test {
namespace {

using Integers = std::vector<std::int64_t>;

TEST(BinaryOps, GradientsMatchFiniteDifferencesUnderBroadcasting) {
  const std::vector<std::pair<Shape, Shape>> pairs = {{{2, 3}, {2, 3}}, {{2, 3}, {3}},       {{5, 1, 7}, {3, 1}},
                                                      {{}, {2, 2}},     {{1, 1, 1}, {2, 3}}, {{}, {}}};
  for (const auto &[a, b] : pairs)
    for (const char *op : {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"})
      expect_gradient(
          {.op = op, .attributes = {}, .inputs = {random_doubles(a, 1, 0.4, 1.9), random_doubles(b, 2, 0.5, 2.1)}});
}

TEST(BinaryOps, GradientsLeaveOutOperandsThatAreFixed) {
  for (const char *op : {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min"})
    for (std::size_t fixed : {0, 1})
      expect_gradient({.op = op,
                       .attributes = {},
                       .inputs = {random_doubles({2, 3}, 1, 0.4, 1.9), random_doubles({3}, 2, 0.5, 2.1)},
                       .fixed = {fixed}});
}

TEST(BinaryOps, GradientOfASquareCountsBothReads) {
  Graph graph;
  const ValueId x = graph.add_value({.name = "x", .type = {DType::f64, {3}}, .origin = Origin::parameter});
  graph.add_node({.op = "Mul", .name = "square", .inputs = {x, x}}, {"y"});
  const std::vector<Array> values = ops::interpret(graph, {{x, Array::from_doubles({DType::f64, {3}}, {1, 2, 3})}});
  EXPECT_EQ(values[index(graph.find("y"))].doubles(), (std::vector<double>{1, 4, 9}));
}

TEST(PowOp, GradientTakesConstantExponentsOfAnySign) {
  for (double exponent : {2.0, 1.0, 3.0, -1.0, 0.5, -0.5})
    expect_gradient({.op = "Pow",
                     .attributes = {},
                     .inputs = {random_doubles({2, 3}, 3, 0.5, 2), Array::scalar(DType::f64, exponent)},
                     .fixed = {1}});
  const Array negative = random_doubles({4}, 4, -2, -0.5);
  for (double exponent : {2.0, 3.0})
    expect_gradient(
        {.op = "Pow", .attributes = {}, .inputs = {negative, Array::scalar(DType::f64, exponent)}, .fixed = {1}});
  expect_gradient({.op = "Pow", .attributes = {}, .inputs = {negative, Array::integers({2, 3, 1, 2})}});
}

TEST(PowOp, GradientOfTheExponentIsZeroAtBaseZero) {
  OneNodeGraph one({.op = "Pow",
                    .attributes = {},
                    .inputs = {Array::from_doubles({DType::f64, {2}}, {0, 2}), random_doubles({2}, 1, 1, 2)},
                    .fixed = {0}});
  const ValueId gradient = one.differentiate()[1];
  const std::vector<double> found = ops::interpret(one.graph, one.bound)[index(gradient)].doubles();
  EXPECT_EQ(found[0], 0);
  EXPECT_TRUE(std::isfinite(found[1]));
}

// If base and exponent are both 0, the general rule for the gradient would give 0 * infinity. The gradient must be
// 0, even if the exponent is a constant array of several values.
TEST(PowOp, GradientOfTheBaseIsZeroAtExponentZero) {
  const Array base = Array::from_doubles({DType::f64, {4}}, {0, 0, 3, -3});
  for (const Array &exponent : {Array::from_doubles({DType::f64, {4}}, {0, 2, 0, 0}), Array::integers({0, 2, 0, 0}),
                                Array::from_doubles({DType::f32, {4}}, {0, 2, 0, 0})}) {
    const std::vector<std::size_t> constant = {1}, none = {};
    for (const std::vector<std::size_t> &fixed : {constant, none}) {
      OneNodeGraph one({.op = "Pow", .attributes = {}, .inputs = {base, exponent}, .fixed = fixed});
      const ValueId gradient = one.differentiate()[0];
      const std::vector<double> found = ops::interpret(one.graph, one.bound)[index(gradient)].doubles();
      for (const double element : found) EXPECT_EQ(element, 0);
    }
  }
  expect_gradient({.op = "Pow", .attributes = {}, .inputs = {base, Array::integers({0, 2, 0, 3})}, .fixed = {1}});
}

TEST(MaxOp, GradientIsSharedByEqualOperands) {
  const Array a = Array::from_doubles({DType::f64, {2}}, {1, 2}), b = Array::from_doubles({DType::f64, {2}}, {1, 3});
  OneNodeGraph one({.op = "Max", .attributes = {}, .inputs = {a, b}, .is_loss = true});
  const std::vector<ValueId> gradients = one.differentiate();
  const std::vector<Array> values = ops::interpret(one.graph, one.bound);
  EXPECT_EQ(values[index(gradients[0])].doubles(), (std::vector<double>{0.5, 0}));
  EXPECT_EQ(values[index(gradients[1])].doubles(), (std::vector<double>{0.5, 1}));
}

TEST(WhereOp, GradientMatchesFiniteDifferences) {
  const Array condition = Array::from_integers({DType::boolean, {2, 3}}, {1, 0, 1, 0, 0, 1});
  for (const auto &[a, b] : std::vector<std::pair<Shape, Shape>>{{{2, 3}, {2, 3}}, {{}, {3}}, {{2, 1}, {5, 1, 1}}})
    expect_gradient(
        {.op = "Where", .attributes = {}, .inputs = {condition, random_doubles(a, 1), random_doubles(b, 2)}});
}

TEST(BinaryOps, IntegersAreExact) {
  const std::int64_t large = (1ll << 53) + 1;
  const auto of = [](const char *op, const Integers &a, const Integers &b) {
    return evaluate(op, {}, {Array::integers(a), Array::integers(b)})[0].integers();
  };
  EXPECT_EQ(of("Add", {large}, {2}), (Integers{large + 2}));
  EXPECT_EQ(of("Mul", {large}, {3}), (Integers{large * 3}));
  EXPECT_EQ(of("Div", {7, -7, 7, -7}, {2, 2, -2, -2}), (Integers{3, -3, -3, 3}));
  EXPECT_EQ(of("Div", {INT64_MIN}, {-1}), (Integers{INT64_MIN}));
  EXPECT_EQ(of("Mod", {7, -7, 7, -7}, {3, 3, -3, -3}), (Integers{1, 2, -2, -1}));
  EXPECT_EQ(of("Pow", {3, -1, -1, 2, 1}, {39, 65, -3, -1, -9}), (Integers{4052555153018976267, -1, -1, 0, 1}));
  EXPECT_EQ(evaluate("Mod", {{"fmod", std::int64_t{1}}}, {Array::integers({-7}), Array::integers({3})})[0].integers(),
            (Integers{-1}));
  const Array small = Array::from_integers({DType::i32, {1}}, {INT32_MAX});
  EXPECT_EQ(evaluate("Add", {}, {small, small})[0].integers(), (Integers{-2}));  // wraps like int32
}

TEST(BinaryOps, RefuseToDivideIntegersByZero) {
  for (const char *op : {"Div", "Mod"})
    EXPECT_EQ(code_of([&] { evaluate(op, {}, {Array::integers({1}), Array::integers({0})}); }), Code::arg) << op;
  EXPECT_EQ(code_of([&] { evaluate("Pow", {}, {Array::integers({0}), Array::integers({-1})}); }), Code::arg);
  const std::vector<double> quotient =
      evaluate("Div", {}, {Array::scalar(DType::f32, 1), Array::scalar(DType::f32, 0)})[0].doubles();
  EXPECT_EQ(quotient[0], HUGE_VAL);
}

TEST(BinaryOps, CompareIntegersExactly) {
  const Array a = Array::integers({(1ll << 53) + 1}), b = Array::integers({1ll << 53});
  EXPECT_EQ(evaluate("Equal", {}, {a, b})[0].integers(), (Integers{0}));
  EXPECT_EQ(evaluate("Greater", {}, {a, b})[0].integers(), (Integers{1}));
  EXPECT_EQ(evaluate("LessOrEqual", {}, {a, b})[0].integers(), (Integers{0}));
}

TEST(BinaryOps, NaNIsUnequalAndComesThroughMax) {
  const Array nan = Array::scalar(DType::f32, NAN), one = Array::scalar(DType::f32, 1);
  EXPECT_EQ(evaluate("Equal", {}, {nan, nan})[0].integers(), (Integers{0}));
  for (const char *op : {"Max", "Min"}) {
    EXPECT_TRUE(std::isnan(evaluate(op, {}, {nan, one})[0].doubles()[0])) << op;
    EXPECT_TRUE(std::isnan(evaluate(op, {}, {one, nan})[0].doubles()[0])) << op;
  }
}

TEST(BinaryOps, TakeManyOperandsInFileForm) {
  const Array a = random_doubles({2, 3}, 1), b = random_doubles({3}, 2), c = random_doubles({2, 1}, 3);
  const std::vector<double> x = a.doubles(), y = b.expanded({2, 3}).doubles(), z = c.expanded({2, 3}).doubles();
  const std::vector<double> most = evaluate("Max", {}, {a, b, c})[0].doubles();
  const std::vector<double> mean = evaluate("Mean", {}, {a, b, c})[0].doubles();
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(most[i], std::max({x[i], y[i], z[i]}));
    EXPECT_NEAR(mean[i], (x[i] + y[i] + z[i]) / 3, 1e-15);
  }
}

TEST(BinaryOps, KeepRepeatedAxesStoredOnce) {
  const Array rows = random_doubles({1, 5, 1}, 1).expanded({1 << 20, 5, 1});
  const Array columns = random_doubles({1, 1, 7}, 2).expanded({1 << 20, 1, 7});
  const Array sum = evaluate("Add", {}, {rows, columns})[0];
  EXPECT_EQ(sum.shape(), (Shape{1 << 20, 5, 7}));
  EXPECT_EQ(sum.stored(), (Shape{1, 5, 7}));
}

TEST(BinaryOps, RefuseOperandsThatDoNotFit) {
  const Array a = random_doubles({2, 3}, 1);
  EXPECT_EQ(code_of([&] { evaluate("Add", {}, {a, random_doubles({2}, 1)}); }), Code::shape);
  EXPECT_EQ(code_of([&] { evaluate("Add", {}, {a, Array::integers({1})}); }), Code::type);
  EXPECT_EQ(code_of([&] { evaluate("And", {}, {a, a}); }), Code::type);
  EXPECT_EQ(code_of([&] { evaluate("Where", {}, {a, a, a}); }), Code::type);
}

}  // namespace
}  // namespace protrain::test::binary_test
