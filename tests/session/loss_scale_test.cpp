// The loss scale shrinks when gradients overflow, and grows after many steps without overflow.
#include "session/loss_scale.h"

#include <gtest/gtest.h>

namespace protrain::session::loss_scale_test {
namespace {

void apply(LossScale &scale, std::uint64_t steps) {
  for (std::uint64_t i = 0; i < steps; ++i) scale.count(true);
}

void overflow(LossScale &scale) {
  scale.shrink();
  scale.count(false);
}

TEST(LossScale, IsHalvedByEachOverflowDownToOne) {
  LossScale scale;
  EXPECT_EQ(scale.value(), 65536u);
  for (int halves = 0; halves < 16; ++halves) EXPECT_TRUE(scale.shrink());
  EXPECT_EQ(scale.value(), 1u);
  EXPECT_FALSE(scale.shrink());
  EXPECT_EQ(scale.value(), 1u);
}

TEST(LossScale, IsDoubledByTwoThousandAppliedStepsInARow) {
  LossScale scale;
  apply(scale, 1999);
  EXPECT_EQ(scale.value(), 65536u);
  apply(scale, 1);
  EXPECT_EQ(scale.value(), 131072u);
  apply(scale, 1999);
  EXPECT_EQ(scale.value(), 131072u);
}

TEST(LossScale, CountsAnewAfterAStepThatWasNotApplied) {
  LossScale scale;
  apply(scale, 1999);
  overflow(scale);
  EXPECT_EQ(scale.value(), 32768u);
  apply(scale, 1999);
  EXPECT_EQ(scale.value(), 32768u);
  apply(scale, 1);
  EXPECT_EQ(scale.value(), 65536u);
}

TEST(LossScale, GrowsNoFurtherThanItsMost) {
  LossScale scale;
  apply(scale, 20 * LossScale::kPatience);
  EXPECT_EQ(scale.value(), LossScale::kMost);
}

TEST(LossScale, GoesOnFromWhatWasSaved) {
  LossScale scale;
  overflow(scale);
  apply(scale, 1500);
  LossScale resumed(scale.value(), scale.applied());
  EXPECT_TRUE(resumed.is_valid());
  apply(resumed, 500);
  EXPECT_EQ(resumed.value(), 65536u);
}

TEST(LossScale, IsAPowerOfTwoWithinItsRange) {
  for (std::uint64_t value : {0ull, 3ull, 1ull << 25, ~0ull}) EXPECT_FALSE(LossScale(value, 0).is_valid()) << value;
  EXPECT_FALSE(LossScale(1, 2000).is_valid());
  EXPECT_TRUE(LossScale(1, 1999).is_valid());
}

}  // namespace
}  // namespace protrain::session::loss_scale_test
