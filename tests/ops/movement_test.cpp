#include <gtest/gtest.h>

#include <numeric>

#include "ops/gradient_check.h"

namespace protrain::test::movement_test {
namespace {

using Integers = std::vector<std::int64_t>;

Array counting(const Shape &shape, DType dtype = DType::i64) {
  Integers values(static_cast<std::size_t>(element_count(shape)));
  std::iota(values.begin(), values.end(), 0);
  return Array::from_integers({dtype, shape}, values);
}

Attributes slice(const Integers &starts, const Integers &ends, const Integers &axes, const Integers &steps) {
  return {{"starts", starts}, {"ends", ends}, {"axes", axes}, {"steps", steps}};
}

// Evaluates the operator twice: on x, which has a repeated axis and does not store the repetitions, and on x stored in
// full. The two results must be equal. The first result must store only `stored` elements.
void expect_compact_agrees(const std::string &op, const Attributes &attributes, const Array &x, std::int64_t stored) {
  const Array compact = evaluate(op, attributes, {x})[0], dense = evaluate(op, attributes, {x.densified()})[0];
  EXPECT_TRUE(compact.same_as(dense)) << op;
  EXPECT_EQ(compact.stored_count(), stored) << op;
}

TEST(TransposeOp, MovesAxes) {
  const Array y = evaluate("Transpose", {{"perm", Integers{2, 0, 1}}}, {counting({2, 3, 2})})[0];
  EXPECT_EQ(y.shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(y.integers(), (Integers{0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}));
  EXPECT_EQ(evaluate("Transpose", {}, {counting({2, 3})})[0].integers(), (Integers{0, 3, 1, 4, 2, 5}));
  expect_compact_agrees("Transpose", {{"perm", Integers{2, 0, 1}}}, counting({3, 1, 2}).expanded({3, 5, 2}), 6);
  for (const Integers &perm : {Integers{0, 0}, Integers{0}, Integers{1, 2}})
    EXPECT_EQ(code_of([&] { evaluate("Transpose", {{"perm", perm}}, {counting({2, 3})}); }), Code::shape);
}

TEST(TransposeOp, GradientMatchesFiniteDifferences) {
  expect_gradient(
      {.op = "Transpose", .attributes = {{"perm", Integers{2, 0, 1}}}, .inputs = {random_doubles({2, 3, 5}, 1)}});
  expect_gradient({.op = "Transpose", .attributes = {}, .inputs = {random_doubles({2, 3}, 1)}});
}

TEST(SliceOp, FollowsOnnxBounds) {
  const Array x = counting({7});
  const auto of = [&](std::int64_t start, std::int64_t end, std::int64_t step) {
    return evaluate("Slice", slice({start}, {end}, {0}, {step}), {x})[0].integers();
  };
  EXPECT_EQ(of(1, -1, 2), (Integers{1, 3, 5}));
  EXPECT_EQ(of(-3, 100, 1), (Integers{4, 5, 6}));
  EXPECT_EQ(of(-100, 2, 1), (Integers{0, 1}));
  EXPECT_EQ(of(100, INT64_MIN, -3), (Integers{6, 3, 0}));
  EXPECT_EQ(of(5, 1, -2), (Integers{5, 3}));
  EXPECT_EQ(of(-100, INT64_MIN, -1), Integers{0});
  EXPECT_EQ(of(-100, 0, -1), Integers{});
  EXPECT_EQ(of(3, 3, 1), Integers{});
  EXPECT_EQ(of(5, 2, 1), Integers{});
  EXPECT_EQ(code_of([&] { of(0, 1, 0); }), Code::shape);
  EXPECT_EQ(code_of([&] { evaluate("Slice", slice({0}, {1, 2}, {0}, {1}), {x}); }), Code::shape);
  EXPECT_EQ(code_of([&] { evaluate("Slice", slice({0}, {1}, {1}, {1}), {x}); }), Code::shape);
}

TEST(SliceOp, CostsNothingAlongARepeatedAxis) {
  expect_compact_agrees("Slice", slice({1, 1}, {4, 3}, {0, -1}, {2, 1}), counting({1, 5}).expanded({6, 5}), 2);
  expect_compact_agrees("Slice", slice({-1}, {INT64_MIN}, {0}, {-1}), counting({1, 5}).expanded({6, 5}), 5);
}

TEST(SliceOp, GradientMatchesFiniteDifferences) {
  const Array x = random_doubles({5, 3, 7}, 1);
  expect_gradient({.op = "Slice", .attributes = slice({1, -4}, {5, -1}, {0, 2}, {2, 1}), .inputs = {x}});
  expect_gradient({.op = "Slice", .attributes = slice({-1}, {INT64_MIN}, {-1}, {-3}), .inputs = {x}});
  expect_gradient({.op = "Slice", .attributes = {{"starts", Integers{1}}, {"ends", Integers{2}}}, .inputs = {x}});
}

TEST(SliceGradOp, KeepsRepeatedAxesThatItCovers) {
  Attributes attributes = slice({1}, {3}, {1}, {1});
  attributes.set("shape", Integers{4, 5});
  expect_compact_agrees("SliceGrad", attributes, counting({1, 2}).expanded({4, 2}), 5);
}

TEST(ConcatOp, JoinsAlongAnyAxis) {
  const Array a = counting({2, 2}), b = counting({2, 1});
  EXPECT_EQ(evaluate("Concat", {{"axis", std::int64_t{-1}}}, {a, b})[0].integers(), (Integers{0, 1, 0, 2, 3, 1}));
  const Array empty = Array::from_integers({DType::i64, {0}}, {});
  EXPECT_EQ(evaluate("Concat", {{"axis", std::int64_t{0}}}, {empty, counting({2}), empty})[0].integers(),
            (Integers{0, 1}));
  EXPECT_EQ(code_of([&] { evaluate("Concat", {{"axis", std::int64_t{0}}}, {a, b}); }), Code::shape);
  EXPECT_EQ(code_of([&] {
              evaluate("Concat", {{"axis", std::int64_t{0}}}, {a, counting({2, 2}, DType::i32)});
            }),
            Code::type);
}

TEST(ConcatOp, KeepsAxesThatEveryPartRepeats) {
  const Array rows = counting({3, 1, 1}).expanded({3, 1 << 20, 1}),
              columns = Array::filled({DType::i64, {3, 1 << 20, 1}}, 7);
  const Array joined = evaluate("Concat", {{"axis", std::int64_t{2}}}, {rows, columns})[0];
  EXPECT_EQ(joined.stored(), (Shape{3, 1, 2}));
}

TEST(ConcatOp, GradientMatchesFiniteDifferences) {
  expect_gradient({.op = "Concat",
                   .attributes = {{"axis", std::int64_t{-2}}},
                   .inputs = {random_doubles({2, 3, 5}, 1), random_doubles({2, 1, 5}, 2), random_doubles({2, 2, 5}, 3)},
                   .fixed = {1}});
}

TEST(SplitOp, CutsAsListedOrEvenly) {
  const std::vector<Array> listed =
      evaluate("Split", {{"axis", std::int64_t{0}}, {"split", Integers{1, 0, 4}}}, {counting({5})}, 3);
  EXPECT_EQ(listed[0].integers(), (Integers{0}));
  EXPECT_EQ(listed[1].integers(), Integers{});
  EXPECT_EQ(listed[2].integers(), (Integers{1, 2, 3, 4}));
  const std::vector<Array> even = evaluate("Split", {{"num_outputs", std::int64_t{3}}}, {counting({7})}, 3);
  EXPECT_EQ(even[2].integers(), (Integers{6}));
  for (const Integers &sizes : {Integers{2, 2}, Integers{6, -1}, Integers{INT64_MAX, INT64_MAX, 7}})
    EXPECT_NE(code_of([&] { evaluate("Split", {{"split", sizes}}, {counting({5})}, sizes.size()); }), Code::ok);
}

TEST(SplitOp, GradientMatchesFiniteDifferencesAndFillsUnreadParts) {
  const Attributes attributes = {{"axis", std::int64_t{-1}}, {"split", Integers{2, 1, 4}}};
  expect_gradient({.op = "Split",
                   .attributes = attributes,
                   .inputs = {random_doubles({3, 7}, 1)},
                   .outputs = 3,
                   .weighted = {0, 1, 2}});
  expect_gradient(
      {.op = "Split", .attributes = attributes, .inputs = {random_doubles({3, 7}, 1)}, .outputs = 3, .weighted = {1}});
}

TEST(PadOp, FillsAround) {
  const Attributes ids = {{"pads", Integers{1, 2}}, {"axes", Integers{-1}}, {"value", Integers{-100}}};
  EXPECT_EQ(evaluate("Pad", ids, {counting({2, 2})})[0].integers(),
            (Integers{-100, 0, 1, -100, -100, -100, 2, 3, -100, -100}));
  expect_compact_agrees("Pad", {{"pads", Integers{0, 1, 0, 0}}, {"value", Integers{9}}},
                        counting({1, 3}).expanded({4, 3}), 4);
  EXPECT_EQ(code_of([&] { evaluate("Pad", {{"pads", Integers{-1, 0}}}, {counting({4})}); }), Code::unsupported);
  EXPECT_EQ(code_of([&] { evaluate("Pad", {{"pads", Integers{1}}}, {counting({4})}); }), Code::shape);
  EXPECT_EQ(code_of([&] {
              evaluate("Pad", {{"mode", std::string("edge")}, {"pads", Integers{1, 1}}}, {counting({4})});
            }),
            Code::unsupported);
}

TEST(PadOp, GradientMatchesFiniteDifferences) {
  expect_gradient({.op = "Pad",
                   .attributes = {{"pads", Integers{1, 0, 2, 3}}, {"value", 0.5}},
                   .inputs = {random_doubles({2, 3}, 1)}});
}

TEST(TriluOp, KeepsATriangle) {
  const auto of = [](std::int64_t upper, std::int64_t k) {
    return evaluate("Trilu", {{"upper", upper}, {"k", k}}, {counting({2, 3})})[0].integers();
  };
  EXPECT_EQ(of(1, 0), (Integers{0, 1, 2, 0, 4, 5}));
  EXPECT_EQ(of(0, 0), (Integers{0, 0, 0, 3, 4, 0}));
  EXPECT_EQ(of(1, 1), (Integers{0, 1, 2, 0, 0, 5}));
  EXPECT_EQ(of(0, -1), (Integers{0, 0, 0, 3, 0, 0}));
  EXPECT_EQ(of(1, INT64_MIN), (Integers{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(of(1, INT64_MAX), (Integers{0, 0, 0, 0, 0, 0}));
  expect_compact_agrees("Trilu", {}, counting({1, 3, 3}).expanded({5, 3, 3}), 9);
  expect_compact_agrees("Trilu", {}, Array::filled({DType::f32, {5, 3, 3}}, 1), 9);
  EXPECT_EQ(code_of([&] { evaluate("Trilu", {}, {counting({3})}); }), Code::shape);
}

TEST(TriluOp, GradientMatchesFiniteDifferences) {
  for (std::int64_t upper : {0, 1})
    expect_gradient({.op = "Trilu",
                     .attributes = {{"upper", upper}, {"k", std::int64_t{1}}},
                     .inputs = {random_doubles({2, 5, 3}, 1)}});
}

TEST(SplitToSequenceOp, IsTypedAsOneOfItsEqualParts) {
  Graph graph;
  const ValueId x = graph.add_value({.name = "x", .type = {DType::f32, {6, 2}}, .origin = Origin::input});
  Node node{.op = "SplitToSequence", .name = "s", .attributes = {{"split", Integers{3, 3}}}, .inputs = {x}};
  EXPECT_EQ(ops::infer(graph, node)[0], (Type{DType::f32, {3, 2}}));
  node.attributes = {{"split", Integers{2, 4}}};
  EXPECT_EQ(code_of([&] { ops::infer(graph, node); }), Code::unsupported);
  node.attributes = {{"keepdims", std::int64_t{0}}};
  EXPECT_EQ(ops::infer(graph, node)[0], (Type{DType::f32, {2}}));
}

}  // namespace
}  // namespace protrain::test::movement_test
