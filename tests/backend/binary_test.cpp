#include <limits>

#include "backend/any_team.h"

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

TEST(BinaryKernel, ArithmeticBroadcasts) {
  for (const char *op : kArithmetic)
    for (const auto &[a, b] : kPairs)
      expect_reference_whatever_the_team({op, {}, {random_floats(a, 1), random_floats(b, 2, 0.5, 2)}});
}

TEST(BinaryKernel, ComparisonsBroadcast) {
  bool wide = false;
  for (const char *op : kComparisons)
    for (const auto &[a, b] : kPairs) {
      const DType dtype = (wide = !wide) ? DType::i64 : DType::i32;
      expect_reference_whatever_the_team(
          {op, {}, {random_integers(a, 3, -2, 3, dtype), random_integers(b, 4, -2, 3, dtype)}});
    }
  for (const char *op : kComparisons)
    expect_reference({op, {}, {floats({4}, {1, 2, kNaN, kInfinity}), floats({4}, {1, 1, 1, kInfinity})}});
}

TEST(BinaryKernel, IntegersAreExact) {
  for (const char *op : kArithmetic)
    for (DType dtype : {DType::i64, DType::i32})
      expect_reference_whatever_the_team(
          {op, {}, {random_integers({13, 200}, 5, -1000, 1000, dtype), random_integers({200}, 6, 1, 9, dtype)}});
}

TEST(BinaryKernel, IntegersWrapAround) {
  const std::int64_t least = std::numeric_limits<std::int64_t>::min();
  const Array a = Array::integers({least, least, 7}), b = Array::integers({-1, 1, -1});
  for (const char *op : {"Div", "Sub", "Mul", "Add"}) expect_reference_whatever_the_team({op, {}, {a, b}});
}

TEST(BinaryKernel, DivisionOfIntegersByZeroIsAnError) {
  for (DType dtype : {DType::i64, DType::i32}) {
    const OneNode one{"Div", {}, {random_integers({2, 2}, 7, 1, 9, dtype), Array::from_integers({dtype, {2}}, {3, 0})}};
    EXPECT_EQ(code_of_run(one, 1), Code::arg);
    EXPECT_EQ(code_of_run(one, 2), Code::arg);
  }
}

TEST(BinaryKernel, LogicCombinesBools) {
  for (const char *op : {"And", "Or", "Xor", "Equal"})
    for (const auto &[a, b] : kPairs)
      expect_reference_whatever_the_team(
          {op, {}, {random_integers(a, 8, 0, 2, DType::boolean), random_integers(b, 9, 0, 2, DType::boolean)}});
}

TEST(BinaryKernel, PowersWithCommonAndOtherExponents) {
  for (double exponent : {2.0, 3.0, 0.5, -1.5})
    expect_reference_whatever_the_team({"Pow", {}, {random_floats({5, 1031}, 10, 0.1, 3), floats({}, {exponent})}});
  expect_reference_whatever_the_team({"Pow", {}, {random_floats({3, 1, 7}, 11, 0.1, 3), random_floats({5, 7}, 12)}});
  expect_reference({"Pow", {}, {floats({3}, {-2, -1, 0}), floats({}, {3})}});
}

TEST(BinaryKernel, NotANumberWinsInMaxAndMin) {
  const Array a = floats({5}, {kNaN, 1, kNaN, kInfinity, -kInfinity}), b = floats({5}, {1, kNaN, kNaN, 0, 0});
  for (const char *op : {"Max", "Min"}) {
    expect_reference_whatever_the_team({op, {}, {a, b}});
    const std::vector<double> y = run_on_cpu({op, {}, {a, b}}, 1)[0].doubles();
    for (int i : {0, 1, 2}) EXPECT_TRUE(std::isnan(y[static_cast<std::size_t>(i)])) << op << " at " << i;
  }
}

TEST(BinaryKernel, OperandsOfTwoTypesAreRefused) {
  EXPECT_THROW(Bench({"And", {}, {random_floats({3}, 13), random_floats({3}, 14)}}, 1), Error);
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

TEST(WhereKernel, ChoosesAmongElementsOfAnyType) {
  for (const auto &[condition, a, b] : kChoices) {
    const Array chosen = random_integers(condition, 15, 0, 2, DType::boolean);
    expect_reference_whatever_the_team({"Where", {}, {chosen, random_floats(a, 16), random_floats(b, 17)}});
    for (DType dtype : {DType::i64, DType::i32, DType::boolean})
      expect_reference_whatever_the_team(
          {"Where", {}, {chosen, random_integers(a, 18, 0, 2, dtype), random_integers(b, 19, 0, 2, dtype)}});
  }
}

}  // namespace
}  // namespace protrain::test
