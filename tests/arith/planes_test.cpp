// The split of a float32 master weight into two planes: the upper one is a 16-bit number, and both together restore the
// master.
#include "arith/planes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace {

namespace arith = protrain::arith;

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
std::uint32_t there_and_back(std::uint32_t bits) {
  const auto planes = arith::split<arith::bf16>(from_bits(bits));
  return std::bit_cast<std::uint32_t>(arith::joined(planes.high, planes.low));
}

// Checks every 251st bit pattern, and all patterns near those where the upper plane changes.
TEST(Planes, LoseNothing) {
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 251) {
    const auto b = static_cast<std::uint32_t>(bits);
    if (std::isnan(from_bits(b))) continue;
    ASSERT_EQ(there_and_back(b), b);
  }
  for (std::uint64_t high = 0; high < 1ull << 16; ++high)
    for (std::uint32_t low : {0x0000u, 0x0001u, 0x7FFEu, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const auto b = static_cast<std::uint32_t>(high << 16 | low);
      if (std::isnan(from_bits(b))) continue;
      ASSERT_EQ(there_and_back(b), b);
    }
}

TEST(Planes, TheUpperOneIsTheNearestBfloat16) {
  for (std::uint64_t bits = 0; bits < 1ull << 32; bits += 251) {
    const float master = from_bits(static_cast<std::uint32_t>(bits));
    const arith::bf16 high = arith::split<arith::bf16>(master).high, even = arith::to_bf16(master);
    if (!std::isfinite(master) || high.bits == even.bits) continue;
    ASSERT_EQ(bits & 0xFFFF, 0x8000u) << "other than to_bf16, and no tie";
    ASSERT_GT(std::abs(arith::widened(high)), std::abs(master));
  }
  const auto upper = [](std::uint32_t bits) { return arith::split<arith::bf16>(from_bits(bits)).high.bits; };
  EXPECT_EQ(upper(0x3F808000u), 0x3F81u);  // a tie, away from zero
  EXPECT_EQ(upper(0xBF808000u), 0xBF81u);
  EXPECT_EQ(upper(0x7F7FFFFFu), 0x7F80u);  // the largest float32 is rounded up to infinity
}

TEST(Planes, OfFloat16AreTheNearestAndTheMasterItself) {
  for (float master : {0.1f, -3.0e-9f, 70000.0f, 65504.0f}) {
    const auto planes = arith::split<arith::f16>(master);
    EXPECT_EQ(planes.high.bits, arith::to_f16(master).bits);
    EXPECT_EQ(arith::joined(planes.high, planes.low), master);
  }
}

TEST(Planes, HoldOneNaN) {
  for (std::uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFF8000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    EXPECT_EQ(there_and_back(bits), 0x7FC00000u);
    EXPECT_TRUE(std::isnan(arith::widened(arith::split<arith::bf16>(from_bits(bits)).high)));
  }
}

}  // namespace
