// Compares every operator's slope with the difference quotient of its value.
#include "arith/unary.h"

#include <gtest/gtest.h>

namespace {

namespace arith = protrain::arith;
using arith::Coefficients;

// Compares slope and difference quotient at 41 points in [low, high], where F must have no kink. With a step of 2^-7,
// the quotient of float32 values is accurate to about 1e-3.
template <typename F>
void expect_slope(const char *name, float low, float high, Coefficients k = {}) {
  constexpr float kStep = 0x1p-7f;
  for (int i = 0; i <= 40; ++i) {
    const float x = low + (high - low) * (static_cast<float>(i) + 0.37f) / 41.0f;
    const double above = F::value(x + kStep, k), below = F::value(x - kStep, k);
    const double quotient = (above - below) / (double{x + kStep} - double{x - kStep});
    EXPECT_NEAR(F::slope(x, k), quotient, 1e-3 * std::max(1.0, std::abs(quotient))) << name << " at " << x;
  }
}

TEST(Unary, SlopesOfSmoothOperatorsMatchDifferences) {
  expect_slope<arith::Exp>("Exp", -3, 3);
  expect_slope<arith::Log>("Log", 0.3f, 5);
  expect_slope<arith::Sqrt>("Sqrt", 0.3f, 5);
  expect_slope<arith::Reciprocal>("Reciprocal", 0.5f, 3);
  expect_slope<arith::Erf>("Erf", -3, 3);
  expect_slope<arith::Tanh>("Tanh", -3, 3);
  expect_slope<arith::Sigmoid>("Sigmoid", -5, 5);
  expect_slope<arith::Softplus>("Softplus", -5, 5);
  expect_slope<arith::Mish>("Mish", -5, 5);
  expect_slope<arith::Sin>("Sin", -4, 4);
  expect_slope<arith::Cos>("Cos", -4, 4);
  expect_slope<arith::Tan>("Tan", -1.2f, 1.2f);
  expect_slope<arith::Asin>("Asin", -0.8f, 0.8f);
  expect_slope<arith::Acos>("Acos", -0.8f, 0.8f);
  expect_slope<arith::Atan>("Atan", -4, 4);
  expect_slope<arith::Sinh>("Sinh", -3, 3);
  expect_slope<arith::Cosh>("Cosh", -3, 3);
  expect_slope<arith::Asinh>("Asinh", -4, 4);
  expect_slope<arith::Acosh>("Acosh", 1.2f, 5);
  expect_slope<arith::Atanh>("Atanh", -0.8f, 0.8f);
  expect_slope<arith::Gelu>("Gelu", -4, 4);
  expect_slope<arith::GeluTanh>("GeluTanh", -4, 4);
  expect_slope<arith::Silu>("Silu", -5, 5);
}

TEST(Unary, SlopesOfPiecewiseOperatorsMatchDifferencesOnEachPiece) {
  expect_slope<arith::Neg>("Neg", -2, 2);
  for (const auto &[low, high] : {std::pair{-2.0f, -0.05f}, std::pair{0.05f, 2.0f}}) {
    expect_slope<arith::Abs>("Abs", low, high);
    expect_slope<arith::Relu>("Relu", low, high);
    expect_slope<arith::LeakyRelu>("LeakyRelu", low, high, {0.1f});
    expect_slope<arith::Elu>("Elu", low, high, {1.5f});
    expect_slope<arith::Celu>("Celu", low, high, {0.7f});
    expect_slope<arith::Selu>("Selu", low, high, {1.67f, 1.05f});
    expect_slope<arith::Softsign>("Softsign", low, high);
  }
  for (const auto &[low, high] : {std::pair{-6.0f, -3.1f}, std::pair{-2.4f, 2.4f}, std::pair{3.1f, 6.0f}}) {
    expect_slope<arith::HardSwish>("HardSwish", low, high);
    expect_slope<arith::HardSigmoid>("HardSigmoid", low, high, {0.2f, 0.5f});
    expect_slope<arith::Clip>("Clip", low, high, {-2.5f, 2.5f});
    expect_slope<arith::ThresholdedRelu>("ThresholdedRelu", low, high, {2.5f});
  }
}

TEST(Unary, ClipHasNoSlopeAtItsBounds) {
  const arith::Coefficients bounds{-1, 6};
  EXPECT_EQ(arith::Clip::slope(-1, bounds), 0);
  EXPECT_EQ(arith::Clip::slope(5, bounds), 1);
  EXPECT_EQ(arith::Clip::slope(6, bounds), 0);
}

TEST(Unary, RoundingIsToEvenAndHasNoSlope) {
  EXPECT_EQ(arith::Round::value(2.5f, {}), 2);
  EXPECT_EQ(arith::Round::value(-3.5f, {}), -4);
  EXPECT_EQ(arith::Floor::value(-0.5f, {}), -1);
  EXPECT_EQ(arith::Ceil::value(0.25f, {}), 1);
  EXPECT_EQ(arith::Round::slope(0.5f, {}), 0);
}

TEST(Unary, SaturatedGatesStayFinite) {
  for (float x : {-100.0f, -20.0f, 20.0f, 100.0f}) {
    const float expected = x < 0 ? 0 : x;
    EXPECT_NEAR(arith::Mish::value(x, {}), expected, 1e-6) << x;
    EXPECT_NEAR(arith::Gelu::value(x, {}), expected, 1e-6) << x;
    EXPECT_NEAR(arith::GeluTanh::value(x, {}), expected, 1e-6) << x;
    EXPECT_NEAR(arith::Silu::value(x, {}), expected, 1e-6) << x;
  }
}

}  // namespace
