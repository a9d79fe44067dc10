// Numbers in codes of eight bits. A larger code must stand for a larger magnitude. Rounding a number must give the code
// of a neighbour. The average over many roundings must be the number itself.
#include "arith/code8.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace protrain::arith::code8_test {
namespace {

TEST(Code8, NumbersRiseWithTheirCodesUpToTheScale) {
  for (int code = 1; code < 128; ++code) {
    const auto one = static_cast<std::uint8_t>(code);
    EXPECT_GT(signed_number(one, 3), signed_number(static_cast<std::uint8_t>(code - 1), 3));
    EXPECT_EQ(signed_number(static_cast<std::uint8_t>(code | 128), 3), -signed_number(one, 3));
  }
  for (int code = 1; code < 256; ++code)
    EXPECT_GT(root_number(static_cast<std::uint8_t>(code), 3), root_number(static_cast<std::uint8_t>(code - 1), 3));
  EXPECT_EQ(signed_number(127, 3), 3);
  EXPECT_EQ(root_number(255, 3), 3);
  EXPECT_EQ(signed_number(0, 3), 0);
  EXPECT_EQ(root_number(0, 3), 0);
  EXPECT_LT(signed_number(1, 1), 2e-5F);
  EXPECT_LT(root_number(1, 1), 2e-5F);
}

TEST(Code8, KeepsTheNumbersOfCodes) {
  for (std::uint32_t dither : {0U, 1U, 0xDEADBEEFU}) {
    for (int code = 1; code < 128; ++code) {
      const auto one = static_cast<std::uint8_t>(code);
      EXPECT_EQ(signed_code(signed_number(one, 1), 1, dither), one);
      EXPECT_EQ(signed_code(-signed_number(one, 1), 1, dither), one | 128);
    }
    for (int code = 1; code < 256; ++code) {
      const auto one = static_cast<std::uint8_t>(code);
      EXPECT_EQ(root_code(root_number(one, 1), 1, dither), one);
    }
  }
}

TEST(Code8, RoundsToANeighbourAndOnAverageToTheNumber) {
  std::minstd_rand random(3);
  std::uniform_real_distribution<float> octave(-10, 0);
  for (int i = 0; i < 200; ++i) {
    const float x = std::exp2(octave(random));
    double sum = 0, sum_of_roots = 0;
    std::set<int> codes;
    constexpr int kSteps = 4000;
    for (int step = 1; step <= kSteps; ++step) {
      const std::uint32_t dither = mixed(static_cast<std::uint32_t>(step));
      const std::uint8_t code = signed_code(-x, 1, dither);
      codes.insert(code);
      sum -= double(signed_number(code, 1));
      sum_of_roots += double(root_number(root_code(x, 1, dither), 1));
    }
    EXPECT_LE(codes.size(), 2U);
    EXPECT_LE(*codes.rbegin() - *codes.begin(), 1);
    EXPECT_NEAR(sum / kSteps, double(x), 0.006 * double(x));
    EXPECT_NEAR(sum_of_roots / kSteps, double(x), 0.003 * double(x));
  }
}

TEST(Code8, LosesSmallMomentsButNoRoot) {
  EXPECT_EQ(signed_code(1e-6F, 1, 5) & 127, 0);
  EXPECT_EQ(root_code(1e-9F, 1, 5), 1);
  EXPECT_EQ(root_code(0, 1, 5), 0);
  EXPECT_EQ(signed_code(0, 1, 5), 0);
}

TEST(Code8, TakesAnyNumber) {
  for (float x : {HUGE_VALF, -HUGE_VALF, std::nanf(""), -std::nanf("")})
    for (float scale : {1.0F, HUGE_VALF, std::nanf("")}) {
      EXPECT_LE(signed_code(x, scale, 9), 255);
      EXPECT_LE(root_code(x, scale, 9), 255);
    }
  EXPECT_EQ(scale_of(0), 1);
  EXPECT_EQ(scale_of(magnitude(-2.5F)), 2.5F);
}

}  // namespace
}  // namespace protrain::arith::code8_test
