#include <limits>

#include "backend/kernel_check.h"

namespace protrain::test::binary_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

TEST(BinaryKernel, DivisionOfIntegersByZeroIsAnError) {
  for (DType dtype : {DType::i64, DType::i32}) {
    const OneNode one{"Div", {}, {random_integers({2, 2}, 7, 1, 9, dtype), Array::from_integers({dtype, {2}}, {3, 0})}};
    EXPECT_EQ(code_of_run(one, 1), Code::arg);
    EXPECT_EQ(code_of_run(one, 2), Code::arg);
  }
}

TEST(BinaryKernel, NotANumberWinsInMaxAndMin) {
  const Array a = floats({5}, {kNaN, 1, kNaN, kInfinity, -kInfinity}), b = floats({5}, {1, kNaN, kNaN, 0, 0});
  for (const char *op : {"Max", "Min"}) {
    const std::vector<double> y = run_on_cpu({op, {}, {a, b}}, 1)[0].doubles();
    for (int i : {0, 1, 2}) EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(i)])) << op << " at " << i;
  }
}

TEST(BinaryKernel, OperandsOfTwoTypesAreRefused) {
  EXPECT_THROW(CpuBench({"And", {}, {random_floats({3}, 13), random_floats({3}, 14)}}, 1), Error);
}

}  // namespace
}  // namespace protrain::test::binary_test
