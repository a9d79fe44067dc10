#include <gtest/gtest.h>

#include <numeric>

#include "ops/gradient_check.h"

namespace protrain::test::gather_test {
namespace {

using Integers = std::vector<std::int64_t>;

Array counting(const Shape &shape) {
  Integers values(static_cast<std::size_t>(element_count(shape)));
  std::iota(values.begin(), values.end(), 0);
  return Array::from_integers({DType::i64, shape}, values);
}

Attributes axis(std::int64_t axis) { return {{"axis", axis}}; }

TEST(GatherOp, ReadsAlongAnyAxis) {
  const Array table = counting({3, 2});
  const Array y = evaluate("Gather", axis(0), {table, Array::from_integers({DType::i32, {1, 2}}, {2, -3})})[0];
  EXPECT_EQ(y.shape(), (Shape{1, 2, 2}));
  EXPECT_EQ(y.integers(), (Integers{4, 5, 0, 1}));
  EXPECT_EQ(evaluate("Gather", axis(-1), {table, Array::from_integers({DType::i64, {}}, {1})})[0].integers(),
            (Integers{1, 3, 5}));
}

TEST(GatherOp, RefusesIndicesOutside) {
  for (std::int64_t index : {3, -4})
    EXPECT_EQ(code_of([&] { evaluate("Gather", axis(0), {counting({3}), Array::integers({index})}); }), Code::arg);
  // Indices are checked even if all elements of the table are equal. The table then stores only one element.
  EXPECT_EQ(code_of([&] {
              evaluate("Gather", axis(0), {Array::filled({DType::f32, {3}}, 1), Array::integers({3})});
            }),
            Code::arg);
  EXPECT_EQ(code_of([&] { evaluate("Gather", axis(0), {counting({3}), random_doubles({1}, 1)}); }), Code::type);
}

TEST(GatherOp, KeepsRepeatedAxesStoredOnce) {
  const Array table = counting({3, 1}).expanded({3, 1 << 20});
  const Array indices = Array::integers({2}).reshaped({1, 1}).expanded({1 << 20, 1});
  const Array y = evaluate("Gather", axis(0), {table, indices})[0];
  EXPECT_EQ(y.shape(), (Shape{1 << 20, 1, 1 << 20}));
  EXPECT_EQ(y.stored_count(), 1);
  EXPECT_EQ(y.stored_integer(0), 2);
}

TEST(GatherOp, GradientAddsUpRepeatedIndices) {
  const Array indices = Array::from_integers({DType::i64, {2, 2}}, {1, -1, 1, 0});
  for (std::int64_t at : {0, 1, -1})
    expect_gradient({.op = "Gather", .attributes = axis(at), .inputs = {random_doubles({3, 5, 2}, 1), indices}});
  expect_gradient({.op = "Gather",
                   .attributes = axis(1),
                   .inputs = {random_doubles({3, 5}, 1), Array::from_integers({DType::i32, {}}, {4})}});
}

TEST(GatherElementsOp, ReadsAnElementPerIndex) {
  const Array indices = Array::from_integers({DType::i64, {2, 2}}, {1, 0, -1, 0});
  EXPECT_EQ(evaluate("GatherElements", axis(0), {counting({3, 2}), indices})[0].integers(), (Integers{2, 1, 4, 1}));
  EXPECT_EQ(evaluate("GatherElements", axis(1), {counting({3, 2}), indices})[0].integers(), (Integers{1, 0, 3, 2}));
  EXPECT_EQ(code_of([&] { evaluate("GatherElements", axis(0), {counting({3}), Array::integers({3})}); }), Code::arg);
}

TEST(GatherElementsOp, GradientMatchesFiniteDifferences) {
  for (std::int64_t at : {0, -1})
    expect_gradient({.op = "GatherElements",
                     .attributes = axis(at),
                     .inputs = {random_doubles({3, 5}, 1), random_indices({2, 5}, 2, -3, 3)}});
}

TEST(GatherNDOp, AddressesLeadingAxes) {
  const Array x = counting({2, 3, 2});
  EXPECT_EQ(evaluate("GatherND", {}, {x, Array::from_integers({DType::i64, {2, 2}}, {0, 1, -1, 2})})[0].integers(),
            (Integers{2, 3, 10, 11}));
  const Array batched = evaluate("GatherND", {{"batch_dims", std::int64_t{1}}},
                                 {x, Array::from_integers({DType::i64, {2, 1}}, {2, 0})})[0];
  EXPECT_EQ(batched.shape(), (Shape{2, 2}));
  EXPECT_EQ(batched.integers(), (Integers{4, 5, 6, 7}));
  EXPECT_EQ(code_of([&] {
              evaluate("GatherND", {}, {x, Array::from_integers({DType::i64, {1, 1}}, {2})});
            }),
            Code::arg);
  EXPECT_EQ(code_of([&] {
              evaluate("GatherND", {}, {x, Array::from_integers({DType::i64, {1, 4}}, {0, 0, 0, 0})});
            }),
            Code::shape);
}

TEST(GatherNDOp, VariesOnlyWhereIndicesOrDataDo) {
  // Every query reads the padding mask (B, S) at (b, k), so all queries get the same elements. The result has the shape
  // (B, 1, Q, S), but stores these elements only once, as (B, 1, 1, S).
  const std::int64_t b = 2, q = 1 << 20, s = 3;
  const Shape shape = {b, 1, q, s, 1};
  const Array batch = counting({b}).reshaped({b, 1, 1, 1, 1}).expanded(shape);
  const Array key = counting({s}).reshaped({1, 1, 1, s, 1}).expanded(shape);
  const Array indices = evaluate("Concat", axis(-1), {batch, key})[0];
  const Array y = evaluate("GatherND", {}, {counting({b, s}), indices})[0];
  EXPECT_EQ(y.shape(), (Shape{b, 1, q, s}));
  EXPECT_EQ(y.stored(), (Shape{b, 1, 1, s}));
  EXPECT_EQ(y.stored_integer(5), 5);
  const Array all_true = evaluate("GatherND", {}, {Array::filled({DType::boolean, {b, s}}, 1), indices})[0];
  EXPECT_EQ(all_true.stored_count(), 1);
}

Array numbers(const Shape &shape, const Integers &values, DType dtype = DType::i64) {
  return Array::from_integers({dtype, shape}, values);
}

Attributes reduction(const char *name) { return {{"reduction", std::string(name)}}; }

TEST(ScatterElementsOp, WritesAnElementPerIndex) {
  const Array indices = numbers({2, 1}, {2, -3}), updates = numbers({2, 1}, {7, 8});
  EXPECT_EQ(evaluate("ScatterElements", axis(1), {counting({2, 3}), indices, updates})[0].integers(),
            (Integers{0, 1, 7, 8, 4, 5}));
  EXPECT_EQ(evaluate("ScatterElements", axis(0), {counting({3, 1}), indices, updates})[0].integers(),
            (Integers{8, 1, 7}));
}

TEST(ScatterElementsOp, CombinesUpdatesWithTheData) {
  constexpr std::int64_t kExact = (std::int64_t{1} << 53) + 1;  // no double
  const Array data = numbers({3}, {kExact, 5, 6}), indices = Array::integers({1, 0, 1});
  const auto found = [&](const char *name) {
    return evaluate("ScatterElements", reduction(name), {data, indices, Array::integers({2, 3, 9})})[0].integers();
  };
  EXPECT_EQ(found("none"), (Integers{3, 9, 6}));
  EXPECT_EQ(found("add"), (Integers{kExact + 3, 16, 6}));
  EXPECT_EQ(found("mul"), (Integers{kExact * 3, 90, 6}));
  EXPECT_EQ(found("max"), (Integers{kExact, 9, 6}));
  EXPECT_EQ(found("min"), (Integers{3, 2, 6}));
  EXPECT_EQ(code_of([&] { found("mean"); }), Code::graph);
}

TEST(ScatterElementsOp, RefusesWhatDoesNotFit) {
  const Array data = counting({2, 2}), one = numbers({1, 1}, {0});
  const auto code = [&](const Array &indices, const Array &updates) {
    return code_of([&] { evaluate("ScatterElements", axis(0), {data, indices, updates}); });
  };
  EXPECT_EQ(code(numbers({1, 1}, {2}), one), Code::arg);
  EXPECT_EQ(code(counting({1, 3}), counting({1, 3})), Code::shape);
  EXPECT_EQ(code(one, counting({2, 1})), Code::shape);
  EXPECT_EQ(code(one, numbers({1, 1}, {0}, DType::i32)), Code::shape);
}

TEST(ScatterNDOp, WritesRows) {
  const Array indices = numbers({2, 1}, {1, -3});
  EXPECT_EQ(evaluate("ScatterND", {}, {counting({3, 2}), indices, numbers({2, 2}, {6, 7, 8, 9})})[0].integers(),
            (Integers{8, 9, 6, 7, 4, 5}));
  const Array flags = Array::filled({DType::boolean, {2, 2}}, 1), place = numbers({1, 2}, {1, -2});
  EXPECT_EQ(evaluate("ScatterND", {}, {flags, place, numbers({1}, {0}, DType::boolean)})[0].integers(),
            (Integers{1, 1, 0, 1}));
}

TEST(ScatterNDOp, RefusesWhatDoesNotFit) {
  const auto code = [](const Array &indices, const Array &updates) {
    return code_of([&] { evaluate("ScatterND", {}, {counting({3, 2}), indices, updates}); });
  };
  EXPECT_EQ(code(numbers({1, 1}, {3}), counting({1, 2})), Code::arg);
  EXPECT_EQ(code(numbers({1, 3}, {0, 0, 0}), counting({1})), Code::shape);
  EXPECT_EQ(code(numbers({1, 1}, {0}), counting({2, 1})), Code::shape);
}

}  // namespace
}  // namespace protrain::test::gather_test
