// SquaredNorm and GlobalNorm.
#include "conformance/contest.h"

namespace protrain::test {
namespace {

PROTRAIN_FAMILY(SquaredNormKernel);
PROTRAIN_FAMILY(GlobalNormKernel);

TEST_P(SquaredNormKernel, IsTheReferencesSum) {
  for (const Shape &shape : {Shape{}, Shape{0}, Shape{5}, Shape{4096}, Shape{3, 4097}, Shape{7, 11, 1300}})
    expect_reference({"SquaredNorm", {}, {random_floats(shape, 1)}}, 1e-12);
}

TEST_P(GlobalNormKernel, IsTheRootOfTheSum) {
  std::vector<Array> squares;
  for (int i = 0; i < 5; ++i) squares.push_back(Array::scalar(DType::f64, i + 0.3));
  expect_reference({"GlobalNorm", {}, squares}, 1e-15);
}

}  // namespace
}  // namespace protrain::test
