#include <limits>

#include "conformance/contest.h"

namespace protrain::test::binary_test {
namespace {

PROTRAIN_FAMILY(BinaryKernel);
PROTRAIN_FAMILY(WhereKernel);

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
    {{3, 5, 64}, {64}},
    {{3, 1, 64}, {5, 1}},
    {{2, 3, 16}, {2, 1, 16}},
    {{2, 3, 12}, {2, 1, 12}},
    {{2, 3, 1, 5, 1}, {7, 1, 11}},
    {{2, 3, 5, 1, 1}, {1, 1, 5, 7, 1}},
    {{0, 3}, {1, 3}},
    {{4, 1}, {0}},
    {{1, 1, 1}, {1}},
};

TEST_P(BinaryKernel, ArithmeticBroadcasts) {
  for (const char *op : kArithmetic)
    for (const auto &[a, b] : kPairs) expect_reference({op, {}, {random_floats(a, 1), random_floats(b, 2, 0.5, 2)}});
}

TEST_P(BinaryKernel, ComparisonsBroadcast) {
  bool wide = false;
  for (const char *op : kComparisons)
    for (const auto &[a, b] : kPairs) {
      const DType dtype = (wide = !wide) ? DType::i64 : DType::i32;
      expect_reference({op, {}, {random_integers(a, 3, -2, 3, dtype), random_integers(b, 4, -2, 3, dtype)}});
    }
  for (const char *op : kComparisons)
    expect_reference({op, {}, {floats({4}, {1, 2, kNaN, kInfinity}), floats({4}, {1, 1, 1, kInfinity})}});
}

TEST_P(BinaryKernel, IntegersAreExact) {
  for (const char *op : kArithmetic)
    for (DType dtype : {DType::i64, DType::i32})
      expect_reference(
          {op, {}, {random_integers({13, 200}, 5, -1000, 1000, dtype), random_integers({200}, 6, 1, 9, dtype)}});
}

TEST_P(BinaryKernel, IntegersWrapAround) {
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const Array a = Array::integers({least, least, 7}), b = Array::integers({-1, 1, -1});
  for (const char *op : {"Div", "Sub", "Mul", "Add"}) expect_reference({op, {}, {a, b}});
}

TEST_P(BinaryKernel, LogicCombinesBools) {
  for (const char *op : {"And", "Or", "Xor", "Equal"})
    for (const auto &[a, b] : kPairs)
      expect_reference(
          {op, {}, {random_integers(a, 8, 0, 2, DType::boolean), random_integers(b, 9, 0, 2, DType::boolean)}});
}

TEST_P(BinaryKernel, PowersWithCommonAndOtherExponents) {
  for (double exponent : {2.0, 3.0, 0.5, -1.5})
    expect_reference({"Pow", {}, {random_floats({5, 1031}, 10, 0.1, 3), floats({}, {exponent})}});
  expect_reference({"Pow", {}, {random_floats({3, 1, 7}, 11, 0.1, 3), random_floats({5, 7}, 12)}});
  expect_reference({"Pow", {}, {floats({3}, {-2, -1, 0}), floats({}, {3})}});
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
    {{3, 1, 1}, {5, 64}, {64}},
    {{5, 64}, {3, 5, 1}, {}},
    {{1, 1, 12}, {3, 5, 12}, {12}},
    {{1, 19}, {17, 1}, {3, 1, 1}},
    {{}, {}, {}},
    {{0}, {1}, {}},
};

TEST_P(WhereKernel, ChoosesAmongElementsOfAnyType) {
  for (const auto &[condition, a, b] : kChoices) {
    const Array chosen = random_integers(condition, 15, 0, 2, DType::boolean);
    expect_reference({"Where", {}, {chosen, random_floats(a, 16), random_floats(b, 17)}});
    for (DType dtype : {DType::i64, DType::i32, DType::boolean})
      expect_reference(
          {"Where", {}, {chosen, random_integers(a, 18, 0, 2, dtype), random_integers(b, 19, 0, 2, dtype)}});
  }
}

TEST_P(BinaryKernel, NotANumberWinsInMaxAndMin) {
  const Array a = floats({5}, {kNaN, 1, kNaN, kInfinity, -kInfinity}), b = floats({5}, {1, kNaN, kNaN, 0, 0});
  for (const char *op : {"Max", "Min"}) expect_reference({op, {}, {a, b}});
}

TEST_P(BinaryKernel, DivisionOfIntegersByZeroIsAnError) {
  for (DType dtype : {DType::i64, DType::i32})
    expect_error({"Div", {}, {random_integers({2, 2}, 7, 1, 9, dtype), Array::from_integers({dtype, {2}}, {3, 0})}},
                 "an integer is divided by 0");
}

}  // namespace
}  // namespace protrain::test::binary_test
