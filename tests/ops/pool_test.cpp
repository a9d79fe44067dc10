#include <gtest/gtest.h>

#include <cmath>

#include "ops/gradient_check.h"

namespace protrain::test::pool_test {
namespace {

using Integers = std::vector<std::int64_t>;
using Doubles = std::vector<double>;

struct Form {
  Shape x;
  Integers kernel, strides, dilations, pads;
  std::int64_t rounds_up = 0;

  Attributes attributes() const {
    return {{"kernel_shape", kernel},
            {"strides", strides},
            {"dilations", dilations},
            {"pads", pads},
            {"ceil_mode", rounds_up}};
  }
};

const std::vector<Form> kForms = {{{2, 3, 7}, {3}, {2}, {1}, {1, 1}},
                                  {{2, 2, 6, 5}, {3, 2}, {2, 1}, {1, 2}, {1, 0, 1, 1}},
                                  {{1, 2, 8, 7}, {2, 3}, {3, 3}, {1, 1}, {0, 1, 0, 0}, 1},
                                  {{1, 2, 3, 4, 3}, {2, 2, 2}, {1, 2, 1}, {1, 1, 1}, {0, 1, 0, 1, 0, 0}}};

TEST(PoolOp, GradientMatchesFiniteDifferences) {
  for (const Form &form : kForms) {
    expect_gradient({"MaxPool", form.attributes(), {random_doubles(form.x, 1)}});
    for (std::int64_t with_pads : {0, 1}) {
      Attributes attributes = form.attributes();
      attributes.set("count_include_pad", with_pads);
      expect_gradient({"AveragePool", attributes, {random_doubles(form.x, 1)}});
    }
  }
}

Array row(const Doubles &values) {
  return Array::from_doubles({DType::f64, {1, 1, static_cast<std::int64_t>(values.size())}}, values);
}

TEST(PoolOp, GivesTheGradientToTheFirstOfTheLargest) {
  const Attributes windows{{"kernel_shape", Integers{3}}, {"strides", Integers{2}}, {"pads", Integers{1, 1}}};
  const Array x = row({1, 1, 2, 2, 2, -INFINITY});
  EXPECT_EQ(evaluate("MaxPool", windows, {x})[0].doubles(), (Doubles{1, 2, 2}));
  EXPECT_EQ(evaluate("MaxPoolGrad", windows, {row({10, 20, 30}), x})[0].doubles(), (Doubles{10, 0, 20, 30, 0, 0}));
}

TEST(PoolOp, ChoosesAnElementEvenIfAllAreMinusInfinity) {
  const Attributes windows{{"kernel_shape", Integers{2}}, {"strides", Integers{2}}};
  const Array x = row({-INFINITY, -INFINITY});
  EXPECT_EQ(evaluate("MaxPoolGrad", windows, {row({10}), x})[0].doubles(), (Doubles{10, 0}));
}

TEST(PoolOp, TakesNaNForTheLargest) {
  const Attributes windows{{"kernel_shape", Integers{2}}, {"strides", Integers{2}}};
  const Array x = row({NAN, 5, 7, NAN});
  for (double value : evaluate("MaxPool", windows, {x})[0].doubles()) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(evaluate("MaxPoolGrad", windows, {row({10, 20}), x})[0].doubles(), (Doubles{10, 0, 0, 20}));
}

TEST(PoolOp, RefusesGradientsThatDoNotFit) {
  const Attributes windows{{"kernel_shape", Integers{2}}, {"shape", Shape{1, 1, 4}}};
  EXPECT_EQ(code_of([&] { evaluate("MaxPoolGrad", windows, {row({1, 2}), row({1, 2, 3, 4})}); }), Code::shape);
  EXPECT_EQ(code_of([&] { evaluate("AveragePoolGrad", windows, {row({1, 2})}); }), Code::shape);
}

TEST(PoolOp, RefusesMoreElementsInWindowsThanItCanReach) {
  const std::int64_t many = std::int64_t{1} << 28;
  const Attributes huge{{"kernel_shape", Integers{many}}, {"pads", Integers{many, 0}}};
  for (const char *op : {"MaxPool", "AveragePool"})
    EXPECT_EQ(code_of([&] { evaluate(op, huge, {row({1, 2})}); }), Code::limit);
}

}  // namespace
}  // namespace protrain::test::pool_test
