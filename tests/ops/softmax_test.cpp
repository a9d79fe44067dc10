#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::softmax_test {
namespace {

TEST(SoftmaxOps, GradientsMatchFiniteDifferencesAlongEveryAxis) {
  for (const char *op : {"Softmax", "LogSoftmax"})
    for (const std::int64_t axis : {-1, 0, 1})
      expect_gradient({.op = op, .attributes = {{"axis", axis}}, .inputs = {random_doubles({3, 4, 5}, 1, -3, 3)}});
}

TEST(SoftmaxOp, SumsToOneHoweverLargeItsOperandsAre) {
  const Array x = Array::from_doubles({DType::f64, {1, 3}}, {1e4, 1e4, -1e4});
  EXPECT_EQ(evaluate("Softmax", {}, {x})[0].doubles(), (std::vector<double>{0.5, 0.5, 0}));
}

TEST(LogSoftmaxOp, IsTheLogarithmOfSoftmax) {
  const Array x = random_doubles({2, 7}, 5);
  const auto p = evaluate("Softmax", {}, {x})[0].doubles(), logs = evaluate("LogSoftmax", {}, {x})[0].doubles();
  for (std::size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(std::log(p[i]), logs[i], 1e-13);
}

TEST(SoftmaxOp, RefusesAnAxisThatIsNotThere) {
  EXPECT_EQ(code_of([] {
              evaluate("Softmax", {{"axis", std::int64_t{2}}}, {random_doubles({2, 3}, 1)});
            }),
            Code::shape);
}

}  // namespace
}  // namespace protrain::test::softmax_test
