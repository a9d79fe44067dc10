#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::conv_test {
namespace {

using Integers = std::vector<std::int64_t>;

struct Form {
  Shape x, w;
  Integers strides, dilations, pads;
  std::int64_t groups = 1;
  Integers output_padding = {};

  Attributes attributes() const {
    Attributes all = {{"strides", strides}, {"dilations", dilations}, {"pads", pads}, {"group", groups}};
    if (!output_padding.empty()) all.set("output_padding", output_padding);
    return all;
  }
};

void expect_form(const char *op, const Form &form, std::int64_t maps) {
  for (bool bias : {false, true}) {
    GradientCase given{op, form.attributes(), {random_doubles(form.x, 1), random_doubles(form.w, 2)}};
    if (bias) given.inputs.push_back(random_doubles({maps}, 3));
    expect_gradient(given);
  }
}

TEST(ConvOp, GradientMatchesFiniteDifferencesOverOneToThreeAxes) {
  expect_form("Conv", {{2, 3, 7}, {4, 3, 3}, {2}, {1}, {1, 0}}, 4);
  expect_form("Conv", {{2, 4, 6, 5}, {6, 2, 3, 2}, {2, 1}, {1, 2}, {1, 0, 1, 1}, 2}, 6);
  expect_form("Conv", {{2, 3, 4, 4}, {3, 1, 2, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}, 3}, 3);
  expect_form("Conv", {{1, 2, 3, 4, 3}, {2, 2, 2, 2, 2}, {1, 2, 1}, {1, 1, 1}, {0, 1, 0, 1, 0, 0}}, 2);
}

// These strides skip elements of x. No window reaches the skipped elements, so their gradients must be zero.
TEST(ConvOp, GradientMatchesFiniteDifferencesWhereWindowsMissElements) {
  expect_form("Conv", {{1, 2, 8, 7}, {2, 2, 2, 3}, {3, 2}, {1, 1}, {0, 0, 0, 0}}, 2);
  expect_form("Conv", {{1, 1, 6}, {1, 1, 1}, {4}, {1}, {0, 0}}, 1);
}

TEST(ConvTransposeOp, GradientMatchesFiniteDifferences) {
  expect_form("ConvTranspose", {{2, 3, 4}, {3, 2, 3}, {2}, {1}, {1, 0}}, 2);
  expect_form("ConvTranspose", {{2, 4, 3, 2}, {4, 3, 3, 2}, {2, 3}, {1, 2}, {1, 0, 0, 1}, 2, {0, 2}}, 6);
  expect_form("ConvTranspose", {{1, 2, 2, 2, 2}, {2, 1, 2, 3, 2}, {1, 2, 1}, {1, 1, 1}, {0, 1, 0, 0, 1, 0}}, 1);
}

TEST(ConvOp, SumsTheProductsOfEachWindow) {
  const Array x = Array::from_doubles({DType::f64, {1, 1, 4}}, {1, 2, 3, 4});
  const Array w = Array::from_doubles({DType::f64, {1, 1, 2}}, {10, 1}),
              bias = Array::from_doubles({DType::f64, {1}}, {5});
  EXPECT_EQ(evaluate("Conv", {{"pads", Integers{1, 0}}}, {x, w, bias})[0].doubles(),
            (std::vector<double>{6, 17, 28, 39}));
  EXPECT_EQ(evaluate("ConvTranspose", {{"strides", Integers{2}}}, {x, w, bias})[0].doubles(),
            (std::vector<double>{15, 6, 25, 7, 35, 8, 45, 9}));
}

TEST(ConvOp, RefusesOperandsThatDoNotFit) {
  const auto code = [](const char *op, const Shape &x, const Shape &w, std::int64_t groups) {
    return code_of([&] { evaluate(op, {{"group", groups}}, {random_doubles(x, 1), random_doubles(w, 2)}); });
  };
  EXPECT_EQ(code("Conv", {1, 4, 5}, {2, 3, 3}, 1), Code::shape);
  EXPECT_EQ(code("Conv", {1, 4, 5}, {3, 2, 3}, 2), Code::shape);
  EXPECT_EQ(code("Conv", {1, 4, 2}, {2, 4, 3}, 1), Code::shape);
  EXPECT_EQ(code("ConvTranspose", {1, 4, 5}, {3, 2, 3}, 1), Code::shape);
  EXPECT_EQ(code("Conv", {1, 1, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 1}, 1), Code::unsupported);
}

}  // namespace
}  // namespace protrain::test::conv_test
