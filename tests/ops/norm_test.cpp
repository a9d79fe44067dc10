#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::norm_test {
namespace {

TEST(NormOps, TogetherMakeTheNormOfAllGradients) {
  const Array a = Array::from_doubles({DType::f32, {2}}, {3, 0}), b = Array::from_doubles({DType::f32, {1, 1}}, {4});
  const Array squared_a = evaluate("SquaredNorm", {}, {a})[0], squared_b = evaluate("SquaredNorm", {}, {b})[0];
  EXPECT_EQ(squared_a.type(), (Type{DType::f64, {}}));
  EXPECT_EQ(squared_a.doubles(), std::vector<double>{9});
  EXPECT_EQ(evaluate("GlobalNorm", {}, {squared_a, squared_b})[0].doubles(), std::vector<double>{5});
}

TEST(NormOps, TakePiecesApartAndJoinThem) {
  const Array x = random_doubles({3, 16384}, 1);
  const Array pieces = evaluate("SquaredNorm", {{"piece", std::int64_t{32768}}}, {x})[0];
  EXPECT_EQ(pieces.type(), (Type{DType::f64, {2}}));
  const std::vector<double> sums = pieces.doubles();
  const double whole = evaluate("SquaredNorm", {}, {x})[0].doubles()[0];
  EXPECT_NEAR(sums[0] + sums[1], whole, 1e-9);
  EXPECT_NEAR(sums[0] / sums[1], 2, 0.1);
  const Array joined = evaluate("JoinSquares", {}, {pieces})[0];
  EXPECT_EQ(joined.type(), (Type{DType::f64, {}}));
  EXPECT_EQ(joined.doubles(), std::vector<double>{sums[0] + sums[1]});
  const Array nothing = random_doubles({0}, 1);
  EXPECT_EQ(evaluate("SquaredNorm", {{"piece", std::int64_t{16384}}}, {nothing})[0].shape(), Shape{0});
  EXPECT_EQ(evaluate("JoinSquares", {}, {nothing})[0].doubles(), std::vector<double>{0});
}

TEST(NormOps, RefusePiecesThatAreNoSubtrees) {
  for (std::int64_t piece : {-16384, 0, 1, 8192, 16385, 3 * 16384})
    EXPECT_EQ(code_of([&] {
                evaluate("SquaredNorm", {{"piece", piece}}, {random_doubles({2}, 1)});
              }),
              Code::unsupported)
        << piece;
  EXPECT_EQ(code_of([] { evaluate("JoinSquares", {}, {random_doubles({}, 1)}); }), Code::type);
  EXPECT_EQ(code_of([] { evaluate("JoinSquares", {}, {Array::filled({DType::f32, {2}}, 1)}); }), Code::type);
}

TEST(NormOps, RefuseWhatIsNoGradient) {
  EXPECT_EQ(code_of([] { evaluate("SquaredNorm", {}, {random_indices({2}, 1, 0, 5)}); }), Code::type);
  EXPECT_EQ(code_of([] { evaluate("GlobalNorm", {}, {random_doubles({2}, 1)}); }), Code::type);
}

}  // namespace
}  // namespace protrain::test::norm_test
