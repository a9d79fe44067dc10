// SquaredNorm and GlobalNorm.
#include "kernel_check.h"

namespace protrain::test {
namespace {

TEST(SquaredNormKernel, IsTheReferencesSum) {
  for (const Shape &shape : {Shape{}, Shape{0}, Shape{5}, Shape{4096}, Shape{3, 4097}, Shape{7, 11, 1300}})
    expect_reference({"SquaredNorm", {}, {random_floats(shape, 1)}}, 1e-12);
}

TEST(SquaredNormKernel, BitsDoNotDependOnTheTeam) {
  const OneNode one{"SquaredNorm", {}, {random_floats({123457}, 2)}};
  const std::vector<double> alone = run_on_cpu(one, 1)[0].doubles();
  for (int threads : {2, 3, 4, 7}) EXPECT_EQ(run_on_cpu(one, threads)[0].doubles(), alone);
}

TEST(SquaredNormKernel, DoesNotOverflowWhereFloatsWould) {
  const OneNode one{"SquaredNorm", {}, {Array::filled({DType::f32, {10}}, 1e30)}};
  EXPECT_NEAR(run_on_cpu(one, 2)[0].doubles()[0], 1e61, 1e55);
}

TEST(GlobalNormKernel, IsTheRootOfTheSum) {
  std::vector<Array> squares;
  for (int i = 0; i < 5; ++i) squares.push_back(Array::scalar(DType::f64, i + 0.3));
  expect_reference({"GlobalNorm", {}, squares}, 1e-15);
}

}  // namespace
}  // namespace protrain::test
