#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::dropout_test {
namespace {

Attributes attributes(double ratio, std::int64_t samples = 2) {
  return {{"key", std::int64_t{-5}}, {"ratio", ratio}, {"samples", samples}};
}

std::vector<Type> types_of(const Attributes &attributes, const Type &x) {
  Graph graph;
  const ValueId in = graph.add_value({.name = "x", .type = x, .origin = Origin::input});
  return ops::infer(graph, {.op = "Dropout", .name = "n", .attributes = attributes, .inputs = {in}});
}

TEST(DropoutOp, GivesAResultAndAMask) {
  const std::vector<Type> types = types_of(attributes(0.1), {DType::f32, {2, 3}});
  ASSERT_EQ(types.size(), 2u);
  EXPECT_EQ(types[0], (Type{DType::f32, {2, 3}}));
  EXPECT_EQ(types[1], (Type{DType::boolean, {2, 3}}));
}

TEST(DropoutOp, RefusesWhatItCannotDo) {
  EXPECT_EQ(code_of([] { types_of(attributes(1), {DType::f32, {2}}); }), Code::arg);
  EXPECT_EQ(code_of([] { types_of(attributes(-0.5), {DType::f32, {2}}); }), Code::arg);
  EXPECT_EQ(code_of([] { types_of(attributes(0.5), {DType::i64, {2}}); }), Code::type);
  EXPECT_EQ(code_of([] { types_of(attributes(0.5), {DType::f32, {3}}); }), Code::shape);
  EXPECT_EQ(code_of([] { types_of(attributes(0.5), {DType::f32, {}}); }), Code::shape);
}

TEST(DropoutOp, ItsGradientDrawsTheSameMask) {
  const GradientCase given{
      .op = "Dropout", .attributes = attributes(0.1), .inputs = {random_doubles({2, 3}, 1)}, .outputs = 2};
  OneNodeGraph one(given);
  const ValueId dx = one.differentiate().at(0);
  const Node &gradient = one.graph.nodes().back();
  EXPECT_EQ(gradient.op, "Dropout");
  EXPECT_EQ(gradient.outputs, (std::vector<ValueId>{dx}));
  EXPECT_EQ(gradient.attributes.print(), given.attributes.print());
}

}  // namespace
}  // namespace protrain::test::dropout_test
