#include <limits>

#include "backend/kernel_check.h"

namespace protrain::test::unary_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(UnaryKernel, NotANumberAndInfinityComeThroughRelu) {
  const OneNode relu{"Relu", {}, {floats({4}, {kNaN, kInfinity, -kInfinity, -0.5})}};
  const std::vector<double> y = run_on_cpu(relu, 1)[0].doubles();
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], kInfinity);
  EXPECT_EQ(y[2], 0);
}

TEST(UnaryKernel, IsNaNAndIsInfTellSpecialValuesApart) {
  const Array x = floats({5}, {kNaN, kInfinity, -kInfinity, 0, 3e38});
  const OneNode only_negative{"IsInf", {{"detect_positive", std::int64_t{0}}}, {x}};
  EXPECT_EQ(run_on_cpu(only_negative, 1)[0].integers(), (std::vector<std::int64_t>{0, 0, 1, 0, 0}));
}

TEST(UnaryKernel, OtherTypesAreRefused) {
  EXPECT_THROW(CpuBench({"Exp", {}, {Array::filled({DType::f64, {3}}, 1)}}, 1), Error);
}

}  // namespace
}  // namespace protrain::test::unary_test
