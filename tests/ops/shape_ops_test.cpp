// Cast, and the operators that change only the shape.
#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::shape_ops_test {
namespace {

using Integers = std::vector<std::int64_t>;

Shape shape_after(const std::string &op, const Attributes &attributes, const Shape &shape) {
  return evaluate(op, attributes, {random_doubles(shape, 1)})[0].shape();
}

TEST(ReshapeOp, FillsMinusOneAndTakesAZeroAtItsWord) {
  EXPECT_EQ(shape_after("Reshape", {{"shape", Integers{2, -1}}}, {2, 3, 5}), (Shape{2, 15}));
  EXPECT_EQ(shape_after("Reshape", {{"shape", Integers{}}}, {1, 1}), (Shape{}));
  EXPECT_EQ(shape_after("Reshape", {{"shape", Integers{0, 5}}}, {3, 0}), (Shape{0, 5}));
  EXPECT_EQ(shape_after("Reshape", {{"shape", Integers{3, 0}}}, {0, 3}), (Shape{3, 0}));
  EXPECT_EQ(shape_after("Reshape", {{"shape", Integers{4, 0, 0}}}, {1, 4, 2, 0}), (Shape{4, 0, 0}));
}

TEST(ReshapeOp, RefusesShapesThatDoNotFit) {
  for (const Integers &shape : {Integers{7}, Integers{-1, -1}, Integers{-2, 3}, Integers{-1, 4}})
    EXPECT_EQ(code_of([&] { shape_after("Reshape", {{"shape", shape}}, {2, 3}); }), Code::shape) << to_text(shape);
  EXPECT_EQ(code_of([&] { shape_after("Reshape", {}, {2, 3}); }), Code::unsupported);
}

TEST(ShapeOps, GiveTheShapesOfOnnx) {
  EXPECT_EQ(shape_after("Squeeze", {}, {1, 2, 1, 3}), (Shape{2, 3}));
  EXPECT_EQ(shape_after("Squeeze", {{"axes", Integers{-2}}}, {1, 2, 1, 3}), (Shape{1, 2, 3}));
  EXPECT_EQ(shape_after("Unsqueeze", {{"axes", Integers{0, -1}}}, {2, 3}), (Shape{1, 2, 3, 1}));
  EXPECT_EQ(shape_after("Flatten", {{"axis", std::int64_t{-1}}}, {2, 3, 5}), (Shape{6, 5}));
  EXPECT_EQ(shape_after("Flatten", {{"axis", std::int64_t{0}}}, {2, 3, 5}), (Shape{1, 30}));
  EXPECT_EQ(shape_after("Expand", {{"shape", Integers{2, 1, 1}}}, {3, 1}), (Shape{2, 3, 1}));
  EXPECT_EQ(shape_after("Identity", {}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(code_of([&] { shape_after("Squeeze", {{"axes", Integers{1}}}, {1, 2}); }), Code::shape);
  EXPECT_EQ(code_of([&] { shape_after("Unsqueeze", {{"axes", Integers{0, 0}}}, {2}); }), Code::shape);
  EXPECT_EQ(code_of([&] { shape_after("Flatten", {{"axis", std::int64_t{4}}}, {2}); }), Code::shape);
}

TEST(ShapeOps, RefuseSizesThatDoNotFit64Bits) {
  const Attributes huge = {{"shape", Integers{1ll << 62, 4}}};
  EXPECT_NE(code_of([&] { shape_after("Expand", huge, {1}); }), Code::ok);
  EXPECT_NE(code_of([&] { shape_after("Reshape", huge, {1}); }), Code::ok);
  EXPECT_NE(code_of([&] { shape_after("Tile", {{"repeats", Integers{INT64_MAX, 2}}}, {2, 2}); }), Code::ok);
}

TEST(ReshapeOp, GradientMatchesFiniteDifferences) {
  expect_gradient({.op = "Reshape", .attributes = {{"shape", Integers{3, 2}}}, .inputs = {random_doubles({2, 3}, 1)}});
  expect_gradient({.op = "Reshape", .attributes = {{"shape", Integers{}}}, .inputs = {random_doubles({1, 1}, 1)}});
}

TEST(ExpandOp, GradientMatchesFiniteDifferences) {
  expect_gradient(
      {.op = "Expand", .attributes = {{"shape", Integers{5, 2, 3}}}, .inputs = {random_doubles({2, 1}, 1)}});
  expect_gradient({.op = "Expand", .attributes = {{"shape", Integers{7}}}, .inputs = {random_doubles({}, 1)}});
  expect_gradient({.op = "Expand", .attributes = {{"shape", Integers{1, 3}}}, .inputs = {random_doubles({1, 3}, 1)}});
}

TEST(ExpandOp, CostsNothing) {
  const Array x = evaluate("Expand", {{"shape", Integers{1 << 30, 4}}}, {random_doubles({4}, 1)})[0];
  EXPECT_EQ(x.stored(), (Shape{1, 4}));
}

TEST(TileOp, RepeatsEachAxisAsAWhole) {
  const Array x = Array::from_integers({DType::i64, {2, 2}}, {1, 2, 3, 4});
  EXPECT_EQ(evaluate("Tile", {{"repeats", Integers{2, 3}}}, {x})[0].integers(),
            (Integers{1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4, 1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}));
}

TEST(CastOp, ConvertsAsTheTypesDo) {
  const auto cast = [](const Array &x, const char *to) { return evaluate("Cast", {{"to", std::string(to)}}, {x})[0]; };
  const Array x = Array::from_doubles({DType::f64, {5}}, {-1.9, 0, 0.1, 1e300, NAN});
  EXPECT_EQ(cast(x, "bool").integers(), (Integers{1, 0, 1, 1, 1}));
  EXPECT_EQ(cast(x, "int32").integers(), (Integers{-1, 0, 0, INT32_MAX, 0}));
  EXPECT_EQ(cast(x, "float32").doubles()[2], static_cast<double>(0.1f));
  const Array large = Array::integers({(1ll << 53) + 1, -1});
  EXPECT_EQ(cast(large, "uint64").integers(), large.integers());
  EXPECT_EQ(cast(large, "float64").doubles()[0], 9007199254740992.0);
  EXPECT_EQ(evaluate("CastLike", {}, {large, x})[0].dtype(), DType::f64);
  EXPECT_EQ(code_of([&] { cast(x, "complex"); }), Code::type);
}

TEST(CastOp, GradientPassesBetweenFloatsAlone) {
  OneNodeGraph floats(
      {.op = "Cast", .attributes = {{"to", std::string("float32")}}, .inputs = {random_doubles({3}, 1)}});
  const ValueId gradient = floats.differentiate()[0];
  ASSERT_NE(gradient, ValueId::none);
  EXPECT_EQ(floats.graph.value(gradient).type, (Type{DType::f64, {3}}));
}

}  // namespace
}  // namespace protrain::test::shape_ops_test
