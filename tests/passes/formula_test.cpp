// Distinguishes tables that programs compute from weights, by their numbers.
#include "passes/parameters/formula.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>
#include <vector>

#include "graph/array.h"

namespace protrain::test::formula_test {

namespace {

using graph::Array;

}  // namespace

TEST(Formula, KnowsTablesThatProgramsWrite) {
  std::vector<double> kernels, banks, random;
  for (int k = 0; k < 17; ++k)
    for (int n = 0; n < 32; ++n) {
      const double window = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * n / 32);
      kernels.push_back(window * std::cos(2 * std::numbers::pi * k * n / 32));
      banks.push_back(std::max(0.0, 1 - std::abs(k - n / 2.0) / 2));
      random.push_back(std::fmod(std::sin(kernels.size() * 12.9898) * 43758.5453, 1));
    }
  const graph::Type type = {DType::f32, {17, 32}};
  EXPECT_NE(passes::formula_of(Array::from_doubles(type, kernels), false), "");
  EXPECT_NE(passes::formula_of(Array::from_doubles(type, banks), false), "");
  EXPECT_EQ(passes::formula_of(Array::from_doubles(type, random), true), "");
  const std::vector<double> hann(kernels.begin(), kernels.begin() + 32);  // row k = 0, which is the window itself
  EXPECT_NE(passes::formula_of(Array::from_doubles({DType::f32, {32}}, hann), false), "");
  EXPECT_EQ(passes::formula_of(Array::from_doubles({DType::f32, {6}}, {1, 0.9999, 1.0002, 1.0001, 0.9998, 1}), false),
            "");
  EXPECT_EQ(passes::formula_of(Array::from_doubles({DType::f32, {6}}, {0.5, -1, 3, 0, 2.5, 7}), false), "");
  EXPECT_NE(passes::formula_of(Array::from_doubles({DType::f32, {6}}, {0.5, -1, 3, 0, 2.5, 7}), true), "");
}

TEST(Formula, KnowsWhatPassesItsOperandOn) {
  const auto identity = [](const Shape &shape, const std::set<std::size_t> &ones) {
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
    for (const std::size_t at : ones) values[at] = 1;
    return passes::is_identity(Array::from_doubles({DType::f32, shape}, values));
  };
  EXPECT_TRUE(identity({3, 3}, {0, 4, 8}));
  EXPECT_TRUE(identity({1, 4, 2}, {0, 3, 4, 7}));  // the two gates of a recurrent layer
  EXPECT_TRUE(identity({2, 2, 3, 3}, {4, 31}));    // a convolution's kernel
  EXPECT_TRUE(identity({2, 1, 1, 3}, {1, 4}));     // of a depthwise convolution
  EXPECT_FALSE(identity({3, 3}, {0, 4}));
  EXPECT_FALSE(identity({3, 3}, {0, 4, 7}));
  EXPECT_FALSE(identity({2, 3}, {0, 4}));  // selects
  EXPECT_FALSE(identity({3}, {0, 1, 2}));
}

}  // namespace protrain::test::formula_test
