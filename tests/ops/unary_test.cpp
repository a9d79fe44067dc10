#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::unary_test {
namespace {

using Integers = std::vector<std::int64_t>;

// Values on both sides of 0, 1 and -1, none of them at a kink.
Array spread(const Shape &shape) { return random_doubles(shape, 5, -2.03, 2.07); }

TEST(UnaryOps, GradientsMatchFiniteDifferences) {
  for (const char *op : {"Neg", "Abs",  "Exp",  "Erf",      "Tanh",     "Sigmoid",        "Relu",      "LeakyRelu",
                         "Elu", "Celu", "Selu", "Softplus", "Softsign", "HardSigmoid",    "HardSwish", "Mish",
                         "Sin", "Cos",  "Gelu", "Silu",     "Clip",     "ThresholdedRelu"})
    for (const Shape &shape : {Shape{7}, Shape{2, 1, 3}, Shape{}})
      expect_gradient({.op = op, .attributes = {}, .inputs = {spread(shape)}});
  for (const char *op : {"Atan", "Sinh", "Cosh", "Asinh"})
    expect_gradient({.op = op, .attributes = {}, .inputs = {spread({7})}});
  for (const char *op : {"Tan", "Asin", "Acos", "Atanh"})
    expect_gradient({.op = op, .attributes = {}, .inputs = {random_doubles({11}, 6, -0.8, 0.8)}});
  expect_gradient({.op = "Acosh", .attributes = {}, .inputs = {random_doubles({11}, 6, 1.2, 5)}});
  for (const char *op : {"Log", "Sqrt", "Reciprocal"})
    expect_gradient({.op = op, .attributes = {}, .inputs = {random_doubles({11}, 6, 0.3, 3)}});
}

TEST(UnaryOps, GradientsFollowTheAttributes) {
  const Array x = spread({13});
  expect_gradient({.op = "LeakyRelu", .attributes = {{"alpha", 0.3}}, .inputs = {x}});
  expect_gradient({.op = "Elu", .attributes = {{"alpha", 1.7}}, .inputs = {x}});
  expect_gradient({.op = "Celu", .attributes = {{"alpha", 1.7}}, .inputs = {x}});
  expect_gradient({.op = "Selu", .attributes = {{"alpha", 1.2}, {"gamma", 0.7}}, .inputs = {x}});
  expect_gradient({.op = "HardSigmoid", .attributes = {{"alpha", 0.6}, {"beta", 0.4}}, .inputs = {x}});
  expect_gradient({.op = "Gelu", .attributes = {{"approximate", std::string("tanh")}}, .inputs = {x}});
  expect_gradient({.op = "Clip", .attributes = {{"min", -0.5}, {"max", 0.75}}, .inputs = {x}});
  expect_gradient({.op = "Clip", .attributes = {{"max", 0.75}}, .inputs = {x}});
  expect_gradient({.op = "ThresholdedRelu", .attributes = {{"alpha", 0.4}}, .inputs = {x}});
}

TEST(UnaryOps, StepsAreFlat) {
  for (const char *op : {"Floor", "Ceil", "Round", "Sign"}) EXPECT_TRUE(ops::find(op)->flat) << op;
  EXPECT_FALSE(ops::find("Abs")->flat);
}

TEST(UnaryOps, HaveTheirDefinedValues) {
  const Array x = Array::from_doubles({DType::f64, {4}}, {-2, -0.5, 0.5, 2.5});
  const auto expect = [&](const char *op, const Attributes &attributes, const std::vector<double> &expected) {
    const std::vector<double> found = evaluate(op, attributes, {x})[0].doubles();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << op << " " << i;
  };
  expect("Round", {}, {-2, 0, 0, 2});  // halves go to even
  expect("Sign", {}, {-1, -1, 1, 1});
  expect("Gelu", {}, {-0.045500263896358417, -0.15426876936299344, 0.34573123063700656, 2.4844758366855413});
  expect("Gelu", {{"approximate", std::string("tanh")}},
         {-0.04540230591222494, -0.15428599017485606, 0.34571400982514394, 2.484915733910001});
  expect("Softplus", {}, {0.126928011042972, 0.474076984180107, 0.974076984180107, 2.578889734292549});
  expect("Mish", {}, {-0.2525014826957089, -0.22074377465173, 0.3752452113048951, 2.471392304557881});
  expect("HardSwish", {}, {-1.0 / 3, -5.0 / 24, 7.0 / 24, 2.5 * 5.5 / 6});
  expect("Swish", {{"alpha", 2.0}},
         {-2 / (1 + std::exp(4)), -0.5 / (1 + std::exp(1)), 0.5 / (1 + std::exp(-1)), 2.5 / (1 + std::exp(-5))});
}

TEST(UnaryOps, KeepIntegersExact) {
  const Array x = Array::integers({INT64_MIN, -((1ll << 53) + 1), 0, (1ll << 53) + 1});
  EXPECT_EQ(evaluate("Neg", {}, {x})[0].integers(), (Integers{INT64_MIN, (1ll << 53) + 1, 0, -((1ll << 53) + 1)}));
  EXPECT_EQ(evaluate("Abs", {}, {x})[0].integers(), (Integers{INT64_MIN, (1ll << 53) + 1, 0, (1ll << 53) + 1}));
  const Attributes bounds = {{"min", Integers{-5}}, {"max", Integers{(1ll << 53) + 1}}};
  EXPECT_EQ(evaluate("Clip", bounds, {x})[0].integers(), (Integers{-5, -5, 0, (1ll << 53) + 1}));
}

TEST(UnaryOps, ClipHasNoSlopeAtItsBounds) {
  const Array dy = Array::from_doubles({DType::f64, {3}}, {2, 2, 2});
  const Array x = Array::from_doubles({DType::f64, {3}}, {-1, 5, 6});
  EXPECT_EQ(evaluate("ClipGrad", {{"min", -1.0}, {"max", 6.0}}, {dy, x})[0].doubles(), (std::vector<double>{0, 2, 0}));
}

TEST(UnaryOps, TellNaNAndInfinityApart) {
  const Array x = Array::from_doubles({DType::f32, {4}}, {NAN, HUGE_VAL, -HUGE_VAL, 1});
  EXPECT_EQ(evaluate("IsNaN", {}, {x})[0].integers(), (Integers{1, 0, 0, 0}));
  EXPECT_EQ(evaluate("IsInf", {}, {x})[0].integers(), (Integers{0, 1, 1, 0}));
  EXPECT_EQ(evaluate("IsInf", {{"detect_negative", std::int64_t{0}}}, {x})[0].integers(), (Integers{0, 1, 0, 0}));
  EXPECT_EQ(evaluate("Not", {}, {evaluate("IsNaN", {}, {x})[0]})[0].integers(), (Integers{0, 1, 1, 1}));
  EXPECT_TRUE(std::isnan(evaluate("Relu", {}, {x})[0].doubles()[0]));
  EXPECT_TRUE(std::isnan(evaluate("Clip", {{"min", 0.0}, {"max", 1.0}}, {x})[0].doubles()[0]));
}

TEST(UnaryOps, RoundOnceToFloat) {
  const Array x = Array::from_doubles({DType::f32, {1}}, {1.1});
  EXPECT_EQ(evaluate("Exp", {}, {x})[0].doubles()[0],
            static_cast<double>(static_cast<float>(std::exp(static_cast<double>(1.1f)))));
}

TEST(UnaryOps, TouchARepeatedAxisOnce) {
  const Array x = random_doubles({1, 3}, 1).expanded({1 << 30, 3});  // 24 GiB if written out
  EXPECT_EQ(evaluate("Tanh", {}, {x})[0].stored(), (Shape{1, 3}));
}

TEST(UnaryOps, RefuseWhatTheyDoNotTake) {
  const Array flag = Array::from_integers({DType::boolean, {2}}, {0, 1});
  EXPECT_EQ(code_of([&] { evaluate("Exp", {}, {flag}); }), Code::type);
  EXPECT_EQ(code_of([&] { evaluate("Exp", {}, {Array::integers({1})}); }), Code::type);
  EXPECT_EQ(code_of([&] { evaluate("Not", {}, {Array::integers({1})}); }), Code::type);
  EXPECT_EQ(code_of([&] { evaluate("TanhGrad", {}, {spread({2}), spread({3})}); }), Code::shape);
}

}  // namespace
}  // namespace protrain::test::unary_test
