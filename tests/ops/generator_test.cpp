#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::generator_test {
namespace {

using Integers = std::vector<std::int64_t>;

Array integer(std::int64_t value) { return Array::from_integers({DType::i64, {}}, {value}); }

TEST(ShapeOp, GivesAPartOfTheShape) {
  const Array x = random_doubles({2, 3, 5}, 1);
  EXPECT_EQ(evaluate("Shape", {}, {x})[0].integers(), (Integers{2, 3, 5}));
  EXPECT_EQ(evaluate("Shape", {{"start", std::int64_t{-2}}, {"end", std::int64_t{100}}}, {x})[0].integers(),
            (Integers{3, 5}));
  EXPECT_EQ(evaluate("Shape", {{"start", std::int64_t{2}}, {"end", std::int64_t{1}}}, {x})[0].integers(), Integers{});
  EXPECT_EQ(evaluate("Size", {}, {x})[0].integers(), (Integers{30}));
}

TEST(RangeOp, CountsUpAndDown) {
  const auto range = [](std::int64_t a, std::int64_t b, std::int64_t step) {
    return evaluate("Range", {}, {integer(a), integer(b), integer(step)})[0].integers();
  };
  EXPECT_EQ(range(2, 7, 2), (Integers{2, 4, 6}));
  EXPECT_EQ(range(3, -1, -2), (Integers{3, 1}));
  EXPECT_EQ(range(3, 3, 1), Integers{});
  EXPECT_EQ(range(3, 0, 1), Integers{});
  const auto real = [](double value) { return Array::scalar(DType::f32, value); };
  EXPECT_EQ(evaluate("Range", {}, {real(0), real(1), real(0.25)})[0].doubles(),
            (std::vector<double>{0, 0.25, 0.5, 0.75}));
}

TEST(RangeOp, RefusesAStepOfZeroAndEndlessRanges) {
  EXPECT_EQ(code_of([&] { evaluate("Range", {}, {integer(0), integer(1), integer(0)}); }), Code::arg);
  EXPECT_EQ(code_of([&] { evaluate("Range", {}, {integer(INT64_MIN), integer(INT64_MAX), integer(1)}); }), Code::limit);
  const Array nan = Array::scalar(DType::f32, NAN);
  EXPECT_EQ(code_of([&] { evaluate("Range", {}, {nan, nan, nan}); }), Code::arg);
}

TEST(RangeOp, IsRefusedWhereItsBoundsAreData) {
  Graph graph;
  const ValueId n = graph.add_value({.name = "n", .type = {DType::i64, {}}, .origin = Origin::input});
  const ValueId one = graph.add_constant("one", integer(1));
  EXPECT_EQ(code_of([&] {
              ops::infer(graph, {.op = "Range", .name = "r", .inputs = {one, n, one}});
            }),
            Code::unsupported);
}

TEST(ConstantOfShapeOp, CostsOneElement) {
  const Attributes attributes = {{"shape", Integers{1 << 20, 1 << 12}}, {"value", Array::integers({(1ll << 53) + 1})}};
  const Array y = evaluate("ConstantOfShape", attributes, {})[0];
  EXPECT_EQ(y.stored_count(), 1);
  EXPECT_EQ(y.stored_integer(0), (1ll << 53) + 1);
  EXPECT_EQ(evaluate("ConstantOfShape", {{"shape", Integers{}}}, {})[0].type(), (Type{DType::f32, {}}));
  EXPECT_NE(code_of([&] { evaluate("ConstantOfShape", {{"shape", Integers{-1}}}, {}); }), Code::ok);
}

TEST(CumSumOp, SumsForwardsAndBackwards) {
  const Array x = Array::from_integers({DType::i64, {2, 3}}, {1, 2, 3, 4, 5, 6});
  const auto of = [&](std::int64_t axis, std::int64_t exclusive, std::int64_t reverse) {
    return evaluate("CumSum", {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}}, {x})[0].integers();
  };
  EXPECT_EQ(of(1, 0, 0), (Integers{1, 3, 6, 4, 9, 15}));
  EXPECT_EQ(of(-1, 1, 0), (Integers{0, 1, 3, 0, 4, 9}));
  EXPECT_EQ(of(1, 0, 1), (Integers{6, 5, 3, 15, 11, 6}));
  EXPECT_EQ(of(0, 1, 1), (Integers{4, 5, 6, 0, 0, 0}));
}

TEST(CumSumOp, CountsOnesOfARepeatedAxis) {
  const Array ones = Array::filled({DType::i64, {1 << 20, 4}}, 1);
  const Array y = evaluate("CumSum", {{"axis", std::int64_t{1}}}, {ones})[0];
  EXPECT_EQ(y.stored(), (Shape{1, 4}));
  EXPECT_EQ(y.stored_integer(3), 4);
}

TEST(GeneratorOps, HaveTheirDefinedValues) {
  const Array matrix = random_doubles({2, 3}, 1);
  EXPECT_EQ(evaluate("EyeLike", {{"k", std::int64_t{1}}, {"dtype", std::string("int64")}}, {matrix})[0].integers(),
            (Integers{0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(evaluate("EyeLike", {{"k", INT64_MIN}}, {matrix})[0].doubles(), std::vector<double>(6, 0));
  const Array found = evaluate("NonZero", {}, {Array::from_integers({DType::boolean, {2, 2}}, {0, 1, 1, 1})})[0];
  EXPECT_EQ(found.shape(), (Shape{2, 3}));
  EXPECT_EQ(found.integers(), (Integers{0, 1, 1, 1, 0, 1}));
  const Array hot = evaluate("OneHot", {{"axis", std::int64_t{0}}},
                             {Array::integers({1, -1}), integer(3), Array::from_doubles({DType::f32, {2}}, {5, 7})})[0];
  EXPECT_EQ(hot.shape(), (Shape{3, 2}));
  EXPECT_EQ(hot.doubles(), (std::vector<double>{5, 5, 7, 5, 5, 7}));
  EXPECT_EQ(evaluate("Constant", {{"value", Array::integers({4})}}, {})[0].integers(), (Integers{4}));
}

}  // namespace
}  // namespace protrain::test::generator_test
