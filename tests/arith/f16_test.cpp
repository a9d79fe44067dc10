// Widens every float16 pattern and checks the result against the definition. Narrows floats of every kind and checks
// the results against the compiler's own type.
#include "arith/f16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace {

namespace arith = protrain::arith;

#if defined(__aarch64__)
using Float16 = __fp16;  // g++ 12 has no _Float16 for Arm
#else
using Float16 = _Float16;
#endif

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
float from_bits(std::uint64_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits)); }

// Decodes by the definition: sign, 2^exponent, mantissa of 10 bits.
float by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1F, mantissa = bits & 0x3FF;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                  : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
  if (exponent == 0x1F) magnitude = mantissa == 0 ? INFINITY : NAN;
  return std::copysign(magnitude, bits & 0x8000 ? -1.0f : 1.0f);
}

TEST(Float16, EveryPatternIsWidenedToTheNumberItStandsFor) {
  for (std::uint32_t pattern = 0; pattern <= 0xFFFF; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const float wide = arith::widened(arith::f16{bits}), right = by_definition(bits);
    if (std::isnan(right))
      ASSERT_TRUE(std::isnan(wide)) << pattern;
    else
      ASSERT_EQ(bits_of(wide), bits_of(right)) << pattern;
  }
}

TEST(Float16, EveryPatternComesBackAsItWas) {
  for (std::uint32_t pattern = 0; pattern <= 0xFFFF; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const bool nan = (bits & 0x7FFF) > 0x7C00;
    const std::uint16_t quiet = nan ? bits | 0x200 : bits;
    ASSERT_EQ(arith::to_f16(arith::widened(arith::f16{bits})).bits, quiet) << pattern;
  }
}

void expect_nearest(std::uint64_t pattern) {
  const float x = from_bits(pattern);
  const std::uint16_t found = arith::to_f16(x).bits;
  if (std::isnan(x))
    ASSERT_EQ(found & 0x7E00, 0x7E00) << pattern;
  else
    ASSERT_EQ(found, std::bit_cast<std::uint16_t>(static_cast<Float16>(x))) << pattern;
}

TEST(Float16, IsTheNearestOfAnyFloat) {
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 251) expect_nearest(bits);
}

// Checks values just above and just below each number, and around the midpoint between the number and its successor.
TEST(Float16, IsTheNearestAroundEveryNumberAndEveryTie) {
  for (std::uint32_t pattern = 0; pattern < 0x7C00; ++pattern) {
    const float here = arith::widened(arith::f16{static_cast<std::uint16_t>(pattern)});
    const float next =
        pattern == 0x7BFF ? 65536.0f : arith::widened(arith::f16{static_cast<std::uint16_t>(pattern + 1)});
    for (float x : {here, here / 2 + next / 2})
      for (float sign : {1.0f, -1.0f})
        for (int step : {-1, 0, 1}) expect_nearest(bits_of(sign * x) + static_cast<std::uint32_t>(step));
  }
}

TEST(Float16, TiesGoToEvenAndWhatIsPastTheLargestIsInfinite) {
  EXPECT_EQ(arith::to_f16(1 + 0x1p-11f).bits, 0x3C00);  // midpoint: down to even
  EXPECT_EQ(arith::to_f16(1 + 0x3p-11f).bits, 0x3C02);  // midpoint: up to even
  EXPECT_EQ(arith::to_f16(65519.996f).bits, 0x7BFF);
  EXPECT_EQ(arith::to_f16(65520.0f).bits, 0x7C00);
  EXPECT_EQ(arith::to_f16(-1e30f).bits, 0xFC00);
  EXPECT_EQ(arith::to_f16(0x1p-25f).bits, 0x0000);  // half of the smallest: down to even
  EXPECT_EQ(arith::to_f16(0x1.8p-24f).bits, 0x0002);
  EXPECT_EQ(arith::to_f16(-0x1p-30f).bits, 0x8000);
  EXPECT_EQ(arith::to_f16(from_bits(0x7F800001u)).bits, 0x7E00);  // the NaN becomes quiet
}

}  // namespace
