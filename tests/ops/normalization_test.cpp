#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::normalization_test {
namespace {

TEST(LayerNormalizationOp, GradientMatchesFiniteDifferences) {
  for (const std::int64_t axis : {-1, 1})
    for (const bool with_bias : {true, false}) {
      const Shape normalized = axis == 1 ? Shape{4, 5} : Shape{5};
      std::vector<Array> inputs = {random_doubles({3, 4, 5}, 1, -2, 2), random_doubles(normalized, 2)};
      if (with_bias) inputs.push_back(random_doubles(normalized, 3));
      expect_gradient({.op = "LayerNormalization",
                       .attributes = {{"axis", axis}, {"epsilon", 1e-3}},
                       .inputs = inputs,
                       .outputs = 3});
    }
}

TEST(RMSNormalizationOp, GradientMatchesFiniteDifferences) {
  for (const std::int64_t axis : {-1, 1})
    expect_gradient(
        {.op = "RMSNormalization",
         .attributes = {{"axis", axis}, {"epsilon", 1e-3}},
         .inputs = {random_doubles({3, 4, 5}, 1, -2, 2), random_doubles(axis == 1 ? Shape{4, 5} : Shape{5}, 2)},
         .outputs = 2});
}

TEST(LayerNormalizationOp, CentresAndScalesEachRow) {
  const Array x = Array::from_doubles({DType::f64, {1, 2}}, {1, 3});
  const Array scale = Array::from_doubles({DType::f64, {2}}, {2, 2}),
              bias = Array::from_doubles({DType::f64, {2}}, {1, 0});
  const auto made = evaluate("LayerNormalization", {{"epsilon", 0.0}}, {x, scale, bias}, 3);
  EXPECT_EQ(made[0].doubles(), (std::vector<double>{-1, 2}));
  EXPECT_EQ(made[1].doubles(), (std::vector<double>{2}));
  EXPECT_EQ(made[2].doubles(), (std::vector<double>{1}));
  EXPECT_EQ(made[1].shape(), (Shape{1, 1}));
}

TEST(NormalizationOps, RefuseAScaleOfAnotherWidth) {
  for (const char *op : {"LayerNormalization", "RMSNormalization"})
    EXPECT_EQ(code_of([&] { evaluate(op, {}, {random_doubles({2, 4}, 1), random_doubles({3}, 2)}, 2); }), Code::shape);
}

}  // namespace
}  // namespace protrain::test::normalization_test
