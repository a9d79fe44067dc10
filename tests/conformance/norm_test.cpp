// The kernels of SquaredNorm, JoinSquares and GlobalNorm.
#include <algorithm>
#include <cmath>

#include "arith/norm_tree.h"
#include "conformance/contest.h"

namespace protrain::test::norm_test {
namespace {

PROTRAIN_FAMILY(SquaredNormKernel);
PROTRAIN_FAMILY(JoinSquaresKernel);
PROTRAIN_FAMILY(GlobalNormKernel);

using arith::kNormPiece;

std::vector<Array> results_of(const OneNode &one, const Contender::Way &way) {
  if (way.prepare != nullptr) way.prepare();
  NodeBench bench(one, *way.machine);
  bench.run();
  bench.expect_guards();
  return bench.results();
}

OneNode norms_of_pieces(const std::vector<Array> &tensors, std::int64_t piece) {
  return {"SquaredNorm", {{"piece", piece}}, tensors, std::vector<bool>(tensors.size(), true)};
}

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

TEST_P(SquaredNormKernel, SumsEachPiece) {
  for (std::int64_t elements : {0, 1, 16383, 16384, 16385, 100000})
    for (std::int64_t piece : {kNormPiece, 2 * kNormPiece, 1024 * kNormPiece})
      expect_reference(norms_of_pieces({random_floats({elements}, 1), random_floats({3, 7}, 2)}, piece), 1e-12);
}

// Expects that joining the sums of a tensor's pieces gives the bits of the whole tensor's squared norm. Also cuts the
// tensor in two at the border of a piece, as if each of two ranks owned one half. This must not change any piece's sum.
void expect_joined_pieces(const Array &x, std::int64_t piece, const Contender::Way &way) {
  SCOPED_TRACE(fmt::format("{} in pieces of {}, {}", to_text(x.type()), piece, way.name));
  const Array whole = results_of({"SquaredNorm", {}, {x}}, way)[0];
  const Array pieces = results_of(norms_of_pieces({x}, piece), way)[0];
  const std::int64_t elements = x.shape()[0], count = divided_up(elements, piece);
  ASSERT_EQ(pieces.shape(), Shape{count});
  EXPECT_TRUE(results_of({"JoinSquares", {}, {pieces}}, way)[0].same_as(whole));

  const std::int64_t cut = std::min(divided_up(count, 2) * piece, elements);
  const std::vector<double> values = x.doubles();
  const Array left = Array::from_doubles({x.dtype(), {cut}}, {values.begin(), values.begin() + cut});
  const Array right = Array::from_doubles({x.dtype(), {elements - cut}}, {values.begin() + cut, values.end()});
  std::vector<double> owned;
  for (const Array &part : results_of(norms_of_pieces({left, right}, piece), way))
    for (double sum : part.doubles()) owned.push_back(sum);
  EXPECT_EQ(owned, pieces.doubles());
}

TEST_P(SquaredNormKernel, JoinedPiecesHaveTheBitsOfTheWhole) {
  std::vector<DType> types = GetParam()->narrow();
  types.push_back(DType::f32);
  for (DType dtype : types)
    for (std::int64_t elements : {std::int64_t{0}, std::int64_t{1}, std::int64_t{4095}, kNormPiece, kNormPiece + 1,
                                  5 * kNormPiece + 7, 64 * kNormPiece + 1}) {
      const Array whole = Array::from_doubles({dtype, {elements}}, random_floats({elements}, 5).doubles());
      for (std::int64_t piece : {kNormPiece, 4 * kNormPiece, 64 * kNormPiece})
        for (const Contender::Way &way : GetParam()->ways) expect_joined_pieces(whole, piece, way);
    }
}

// Numbers that use all bits of a double, so that adding them in another order gives other bits.
Array long_doubles(std::int64_t count) {
  std::vector<double> values = random_floats({count}, 3, 0, 1).doubles();
  for (double &value : values) value = std::sqrt(value);
  return Array::from_doubles({DType::f64, {count}}, values);
}

// One block of threads joins up to 4096 sums on a GPU, and up to 256 on the emulated device. Some counts lie just below
// or above these limits.
TEST_P(JoinSquaresKernel, HasTheBitsOfTheReferencesTree) {
  std::vector<Array> tensors;
  for (std::int64_t count : {0, 1, 2, 3, 5, 31, 127, 128, 255, 256, 257, 1000, 4095, 4096, 4097, 70000}) {
    tensors.push_back(long_doubles(count));
    expect_reference({"JoinSquares", {}, {tensors.back()}}, 0);
  }
  for (int i = 0; i < 70; ++i) tensors.push_back(Array::from_doubles({DType::f64, {2}}, {0.1 * i, 0.7}));
  expect_reference({"JoinSquares", {}, tensors, std::vector<bool>(tensors.size(), true)}, 0);
}

TEST_P(GlobalNormKernel, IsTheRootOfTheSum) {
  std::vector<Array> squares;
  for (int i = 0; i < 5; ++i) squares.push_back(Array::scalar(DType::f64, i + 0.3));
  expect_reference({"GlobalNorm", {}, squares}, 1e-15);
}

}  // namespace
}  // namespace protrain::test::norm_test
