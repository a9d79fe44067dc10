#include <limits>

#include "backend/kernel_check.h"

namespace protrain::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

const char *const kArithmetic[] = {"Add", "Sub", "Mul", "Div", "Max", "Min"};
const char *const kComparisons[] = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"};

struct Pair {
  Shape a, b;
};
const Pair kPairs[] = {
    {{}, {}},
    {{5, 1031}, {5, 1031}},
    {{5, 1031}, {}},
    {{}, {5, 1031}},
    {{13, 17, 19}, {19}},
    {{19}, {13, 17, 19}},
    {{13, 17, 19}, {13, 1, 1}},
    {{13, 17, 1}, {13, 17, 19}},
    {{13, 1, 19}, {1, 17, 1}},
    {{2, 3, 1, 5, 1}, {7, 1, 11}},
    {{2, 3, 5, 1, 1}, {1, 1, 5, 7, 1}},
    {{0, 3}, {1, 3}},
    {{4, 1}, {0}},
    {{1, 1, 1}, {1}},
};

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

struct Choice {
  Shape condition, a, b;
};
const Choice kChoices[] = {
    {{5, 1031}, {5, 1031}, {5, 1031}},
    {{5, 1031}, {5, 1031}, {}},
    {{5, 1031}, {}, {5, 1031}},
    {{5, 1031}, {}, {}},
    {{17, 19}, {3, 17, 19}, {1}},
    {{3, 1, 1}, {17, 19}, {}},
    {{1, 19}, {17, 1}, {3, 1, 1}},
    {{}, {}, {}},
    {{0}, {1}, {}},
};

}  // namespace
}  // namespace protrain::test
