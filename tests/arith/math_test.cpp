// Checks the error bounds that arith/math.h states, over a sample of all bit patterns, and the values at the edges.
#include "arith/math.h"

#include <gtest/gtest.h>

#include <limits>

namespace {

namespace arith = protrain::arith;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The distance between neighbouring floats at `value`.
double last_place(double value) {
  int exponent;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}

// Wraps a function of arith/ in a lambda. Compilers must inline these functions, and with few optimisations they cannot
// do so through a pointer.
#define FUNCTION(name) [](float x) { return arith::name(x); }

// The largest error of `found` against `exact` in units in the last place, over every 997th float in [low, high].
template <typename Found, typename Exact>
double largest_error(Found found, Exact exact, float low, float high) {
  double largest = 0;
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 997) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    const double expected = exact(static_cast<double>(x)), result = found(x);
    const bool edge = std::isinf(static_cast<float>(expected)) || std::isnan(expected);
    if (edge ? !(std::isnan(expected) ? std::isnan(result) : result == static_cast<float>(expected)) : false)
      return kInfinity;
    if (!edge) largest = std::max(largest, std::abs(result - expected) / last_place(expected));
  }
  return largest;
}

double exact_sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double exact_softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

TEST(Math, ExpIsWithinOneUnitInTheLastPlace) {
  EXPECT_LE(largest_error(
                FUNCTION(exp), [](double x) { return std::exp(x); }, -kInfinity, kInfinity),
            1.0);
}
TEST(Math, LogIsWithinOneUnitInTheLastPlace) {
  EXPECT_LE(largest_error(
                FUNCTION(log), [](double x) { return std::log(x); }, -kInfinity, kInfinity),
            1.0);
}
TEST(Math, TanhAndErfAreWithinTheirBounds) {
  EXPECT_LE(largest_error(
                FUNCTION(tanh), [](double x) { return std::tanh(x); }, -kInfinity, kInfinity),
            1.4);
  EXPECT_LE(largest_error(
                FUNCTION(erf), [](double x) { return std::erf(x); }, -kInfinity, kInfinity),
            1.2);
}
TEST(Math, Expm1AndLog1pKeepSmallArguments) {
  EXPECT_LE(largest_error(
                FUNCTION(expm1), [](double x) { return std::expm1(x); }, -kInfinity, kInfinity),
            1.8);
  EXPECT_LE(largest_error(
                FUNCTION(log1p), [](double x) { return std::log1p(x); }, 0, kInfinity),
            1.3);
}
TEST(Math, SigmoidAndSoftplusAreWithinTheirBounds) {
  EXPECT_LE(largest_error(FUNCTION(sigmoid), exact_sigmoid, -85, kInfinity), 2.4);
  EXPECT_LE(largest_error(FUNCTION(softplus), exact_softplus, -85, kInfinity), 2.0);
}

TEST(Math, NotANumberComesThrough) {
  EXPECT_TRUE(std::isnan(arith::exp(kNaN)));
  EXPECT_TRUE(std::isnan(arith::log(kNaN)));
  EXPECT_TRUE(std::isnan(arith::tanh(kNaN)));
  EXPECT_TRUE(std::isnan(arith::erf(kNaN)));
  EXPECT_TRUE(std::isnan(arith::expm1(kNaN)));
  EXPECT_TRUE(std::isnan(arith::log1p(kNaN)));
  EXPECT_TRUE(std::isnan(arith::sigmoid(kNaN)));
  EXPECT_TRUE(std::isnan(arith::softplus(kNaN)));
}

TEST(Math, EdgesAreExact) {
  EXPECT_EQ(arith::exp(0), 1);
  EXPECT_EQ(arith::exp(-kInfinity), 0);
  EXPECT_EQ(arith::exp(kInfinity), kInfinity);
  EXPECT_EQ(arith::log(1), 0);
  EXPECT_EQ(arith::log(0), -kInfinity);
  EXPECT_TRUE(std::isnan(arith::log(-1)));
  EXPECT_EQ(arith::tanh(kInfinity), 1);
  EXPECT_EQ(arith::tanh(-kInfinity), -1);
  EXPECT_EQ(arith::erf(-5), -1);
  EXPECT_EQ(arith::sigmoid(0), 0.5);
  EXPECT_EQ(arith::sigmoid(-kInfinity), 0);
  EXPECT_EQ(arith::softplus(kInfinity), kInfinity);
  EXPECT_EQ(arith::softplus(10000), 10000);
  EXPECT_EQ(arith::softplus(-10000), 0);
  EXPECT_TRUE(std::signbit(arith::tanh(-0.0f)));
}

}  // namespace
