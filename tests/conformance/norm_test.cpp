// SquaredNorm and GlobalNorm.
#include "conformance/contest.h"

namespace protrain::test::norm_test {
namespace {

PROTRAIN_FAMILY(SquaredNormKernel);
PROTRAIN_FAMILY(GlobalNormKernel);

TEST_P(SquaredNormKernel, IsTheReferencesSum) {
  for (const Shape &shape : {Shape{}, Shape{0}, Shape{5}, Shape{4096}, Shape{3, 4097}, Shape{7, 11, 1300}})
    expect_reference({"SquaredNorm", {}, {random_floats(shape, 1)}}, 1e-12);
}

TEST_P(SquaredNormKernel, SumsOfSeveralTensorsHaveTheBitsOfEach) {
  std::vector<Array> tensors;
  for (std::int64_t elements : {5, 4097, 0, 1024, 1025, 20000}) tensors.push_back(random_floats({elements}, 2));
  for (int i = 0; i < 70; ++i) tensors.push_back(random_floats({i + 1}, 3));
  const auto sums = [](const std::vector<Array> &of) {
    NodeBench bench({"SquaredNorm", {}, of, std::vector<bool>(of.size(), true)}, *GetParam()->ways[0].machine);
    bench.run();
    return bench.results();
  };
  const std::vector<Array> together = sums(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    EXPECT_EQ(together[i].doubles(), sums({tensors[i]})[0].doubles()) << i;
}

TEST_P(GlobalNormKernel, IsTheRootOfTheSum) {
  std::vector<Array> squares;
  for (int i = 0; i < 5; ++i) squares.push_back(Array::scalar(DType::f64, i + 0.3));
  expect_reference({"GlobalNorm", {}, squares}, 1e-15);
}

}  // namespace
}  // namespace protrain::test::norm_test
