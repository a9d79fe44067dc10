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

TEST(NormOps, RefuseWhatIsNoGradient) {
  EXPECT_EQ(code_of([] { evaluate("SquaredNorm", {}, {random_indices({2}, 1, 0, 5)}); }), Code::type);
  EXPECT_EQ(code_of([] { evaluate("GlobalNorm", {}, {random_doubles({2}, 1)}); }), Code::type);
}

}  // namespace
}  // namespace protrain::test::norm_test
