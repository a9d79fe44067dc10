// The kernels of SquaredNorm and GlobalNorm.
#include "backend/kernel_check.h"

namespace protrain::test::norm_test {
namespace {

TEST(SquaredNormKernel, BitsDoNotDependOnTheTeam) {
  const OneNode one{"SquaredNorm", {}, {random_floats({123457}, 2)}};
  const std::vector<double> alone = run_on_cpu(one, 1)[0].doubles();
  for (int threads : {2, 3, 4, 7}) EXPECT_EQ(run_on_cpu(one, threads)[0].doubles(), alone);
}

TEST(SquaredNormKernel, DoesNotOverflowWhereFloatsWould) {
  const OneNode one{"SquaredNorm", {}, {Array::filled({DType::f32, {10}}, 1e30)}};
  EXPECT_NEAR(run_on_cpu(one, 2)[0].doubles()[0], 1e61, 1e55);
}

}  // namespace
}  // namespace protrain::test::norm_test
