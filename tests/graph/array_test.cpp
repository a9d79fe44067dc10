#include "graph/array.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace protrain::graph::array_test {
namespace {

using Integers = std::vector<std::int64_t>;

Array counting(const Shape &shape, DType dtype = DType::i64) {
  Integers values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i);
  return Array::from_integers({dtype, shape}, values);
}

TEST(Array, KeepsEveryDTypeThroughDoubles) {
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8, DType::i16, DType::i32, DType::i64,
                      DType::u8, DType::u16, DType::u32, DType::u64}) {
    const std::vector<double> values = {0, 1, 2, 100};
    EXPECT_EQ(Array::from_doubles({dtype, {4}}, values).doubles(), values) << name_of(dtype);
  }
  EXPECT_EQ(Array::from_doubles({DType::boolean, {3}}, {0, 2, -1}).integers(), (Integers{0, 1, 1}));
}

TEST(Array, RoundsHalvesToNearestEven) {
  const auto stored = [](DType dtype, double value) { return Array::scalar(dtype, value).doubles()[0]; };
  EXPECT_EQ(stored(DType::bf16, 1 + 1.0 / 256), 1);                      // half way: down to even
  EXPECT_EQ(stored(DType::bf16, 1 + 3.0 / 256), 1 + 1.0 / 64);           // half way: up to even
  EXPECT_EQ(stored(DType::bf16, 1 + 1.0 / 256 + 1e-12), 1 + 1.0 / 128);  // above half way; half way in float32
  EXPECT_EQ(stored(DType::bf16, -(1 + 1.0 / 256 + 1e-12)), -1 - 1.0 / 128);
  EXPECT_EQ(stored(DType::bf16, 1 + 3.0 / 256 - 1e-12), 1 + 1.0 / 128);
  EXPECT_EQ(stored(DType::f16, 1 + 1.0 / 2048), 1);
  EXPECT_EQ(stored(DType::f16, 65520), HUGE_VAL);
  EXPECT_EQ(stored(DType::f32, 16777217), 16777216);
  EXPECT_TRUE(std::isnan(stored(DType::bf16, NAN)));
}

// Compares every float16 with the definition. Also checks how values half way between neighbours are rounded.
TEST(Array, HoldsEveryFloat16) {
  const auto number = [](int bits) {
    const int exponent = bits >> 10, mantissa = bits & 0x3FF;
    return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  };
  std::vector<double> numbers, halves, nearest;
  constexpr int kInfinity = 0x1F << 10;
  for (int bits = 0; bits < kInfinity; ++bits) {
    numbers.push_back(number(bits));
    numbers.push_back(-number(bits));
    halves.push_back((number(bits) + number(bits + 1)) / 2);
    const int even = bits + bits % 2;
    nearest.push_back(even == kInfinity ? HUGE_VAL : number(even));
  }
  const auto stored = [](const std::vector<double> &values) {
    return Array::from_doubles({DType::f16, {static_cast<std::int64_t>(values.size())}}, values).doubles();
  };
  EXPECT_EQ(stored(numbers), numbers);
  EXPECT_EQ(stored(halves), nearest);
  EXPECT_EQ(stored({HUGE_VAL, -HUGE_VAL, 1e300, 1e-300}), (std::vector<double>{HUGE_VAL, -HUGE_VAL, HUGE_VAL, 0}));
  EXPECT_TRUE(std::signbit(stored({-0.0})[0]));
}

TEST(Array, LimitsFloatsThatDoNotFitAnInteger) {
  const std::vector<double> values = {1e300, -1e300, NAN, 3.9, -3.9};
  EXPECT_EQ(Array::from_doubles({DType::i32, {5}}, values).integers(), (Integers{INT32_MAX, INT32_MIN, 0, 3, -3}));
  EXPECT_EQ(Array::from_doubles({DType::i64, {5}}, values).integers(), (Integers{INT64_MAX, INT64_MIN, 0, 3, -3}));
}

TEST(Array, KeepsLargeIntegersExact) {
  const Integers values = {INT64_MAX, INT64_MIN, (1ll << 53) + 1};
  EXPECT_EQ(Array::integers(values).integers(), values);
}

TEST(Array, StoresRepeatedAxesOnce) {
  const Array row = counting({1, 1, 4}).expanded({3, 2, 4});
  const Array compact = row.densified().compact();
  EXPECT_EQ(row.densified().stored(), (Shape{3, 2, 4}));
  EXPECT_EQ(compact.stored(), (Shape{1, 1, 4}));
  EXPECT_TRUE(compact.same_as(row));
  EXPECT_EQ(compact.integers(), row.densified().integers());
  EXPECT_EQ(counting({2, 3}).compact().stored(), (Shape{2, 3}));
  EXPECT_EQ(counting({5, 1}).expanded({5, 7}).densified().compact().stored(), (Shape{5, 1}));
}

TEST(Array, CompactsEmptyTensors) {
  for (const Shape &shape : {Shape{0, 3}, Shape{3, 0}, Shape{0}})
    EXPECT_EQ(counting(shape).compact().integers(), Integers{}) << to_text(shape);
}

TEST(Array, TellsArraysApartWhateverIsStored) {
  const Array compact = counting({1, 3}).expanded({2, 3});
  EXPECT_TRUE(compact.same_as(compact.densified()));
  EXPECT_FALSE(compact.same_as(counting({2, 3})));
  EXPECT_FALSE(Array::scalar(DType::f64, 0.0).same_as(Array::scalar(DType::f64, -0.0)));
  EXPECT_FALSE(Array::scalar(DType::f64, 0).same_as(Array::scalar(DType::f32, 0)));
}

TEST(Array, ReshapesWithoutWritingRepeatedAxesOut) {
  const Array mask = counting({1, 1, 3, 4}).expanded({5, 1, 3, 4});
  for (const Shape &shape : {Shape{5, 3, 4}, Shape{5, 12}, Shape{1, 5, 1, 12}, Shape{5, 3, 2, 2}}) {
    const Array seen = mask.reshaped(shape);
    EXPECT_EQ(seen.stored_count(), 12) << to_text(shape);
    EXPECT_EQ(seen.integers(), mask.integers()) << to_text(shape);
  }
  // The reshape joins a repeated axis with one that is not repeated, so the result stores these two axes in full.
  const Array joined = counting({1, 3, 1, 2}).expanded({5, 3, 7, 2}).reshaped({15, 7, 2});
  EXPECT_EQ(joined.stored(), (Shape{15, 1, 2}));
  EXPECT_EQ(joined.integers(), counting({1, 3, 1, 2}).expanded({5, 3, 7, 2}).integers());
}

TEST(Array, RefusesAReshapeThatLosesElements) {
  EXPECT_THROW(counting({2, 3}).reshaped({5}), Error);
  EXPECT_THROW(counting({2, 3}).expanded({4, 3}), Error);
  EXPECT_THROW(counting({2, 3}).expanded({3}), Error);
}

TEST(Array, RefusesSizesAboveItsLimit) {
  const Array large = Array::filled({DType::f64, {1ll << 40}}, 1);  // stored as one number
  EXPECT_EQ(large.stored_bytes(), 8u);
  try {
    large.densified();
    FAIL();
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::limit);
  }
}

TEST(Array, WalksByStridesThatAreZeroAlongRepeatedAxes) {
  EXPECT_EQ(counting({2, 1, 3}).expanded({2, 5, 3}).strides(), (Integers{3, 0, 1}));
  EXPECT_EQ(counting({2, 1, 3}).expanded({2, 5, 3}).integers(),
            (Integers{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5}));
}

}  // namespace
}  // namespace protrain::graph::array_test
