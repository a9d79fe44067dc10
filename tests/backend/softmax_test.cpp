#include <limits>

#include "backend/kernel_check.h"

namespace protrain::test::softmax_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(SoftmaxKernel, MaskedScoresGetNothingAndRowsOfNothingElseAreNotANumber) {
  const Array x = floats({2, 3}, {1, -kInfinity, 2, -kInfinity, -kInfinity, -kInfinity});
  const std::vector<double> y = run_on_cpu({"Softmax", {}, {x}}, 1)[0].doubles();
  EXPECT_EQ(y[1], 0);
  EXPECT_NEAR(y[0] + y[2], 1, 1e-6);
  for (std::size_t i : {3, 4, 5}) EXPECT_TRUE(std::isnan(y[i]));
}

}  // namespace
}  // namespace protrain::test::softmax_test
