#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::accumulate_test {
namespace {

// Returns the type of the sum of an Accumulate node whose operands have these types.
Type sum_of(const Attributes &attributes, const std::vector<Type> &operands) {
  Graph graph;
  Node node{.op = "Accumulate", .name = "n", .attributes = attributes};
  for (const Type &type : operands)
    node.inputs.push_back(graph.add_value({.name = "x", .type = type, .origin = Origin::input}));
  return ops::infer(graph, node).at(0);
}

Attributes parts(std::int64_t count) { return {{"parts", count}}; }

const Type kSum = {DType::f32, {2, 3}}, kWeight = {DType::f64, {}}, kNoElements = {DType::f32, {0}};

TEST(AccumulateOp, KeepsTheTypeOfTheSum) {
  EXPECT_EQ(sum_of({}, {kSum, {DType::bf16, {2, 3}}, kWeight}), kSum);
  for (std::int64_t stride : {6, 7, 64}) {
    const Type x{DType::f16, {4 * stride}};
    EXPECT_EQ(sum_of(parts(4), {kSum, x}), kSum);
    EXPECT_EQ(sum_of(parts(4), {kSum, x, kWeight}), kSum);
    EXPECT_EQ(sum_of(parts(4), {kSum, x, {DType::f64, {4}}}), kSum);
  }
  EXPECT_EQ(sum_of(parts(3), {kWeight, {DType::f64, {3}}, kWeight}), kWeight);
  EXPECT_EQ(sum_of(parts(3), {kNoElements, kNoElements}), kNoElements);
  EXPECT_EQ(sum_of(parts(3), {kNoElements, {DType::f32, {6}}}), kNoElements);
}

TEST(AccumulateOp, RefusesWhatDoesNotFit) {
  const auto refusal = [](const Attributes &attributes, const std::vector<Type> &operands) {
    return code_of([&] { sum_of(attributes, operands); });
  };
  EXPECT_EQ(refusal({}, {kSum, {DType::f32, {6}}}), Code::type);
  EXPECT_EQ(refusal({}, {kSum, kSum, {DType::f64, {1}}}), Code::type);
  EXPECT_EQ(refusal(parts(0), {kSum, kSum}), Code::arg);
  EXPECT_EQ(refusal(parts(2), {kSum, {DType::f32, {13}}}), Code::type);  // not divisible into two equal parts
  EXPECT_EQ(refusal(parts(2), {kSum, {DType::f32, {10}}}), Code::type);  // parts smaller than the sum
  EXPECT_EQ(refusal(parts(2), {kSum, {DType::f64, {12}}}), Code::type);
  EXPECT_EQ(refusal(parts(2), {{DType::bf16, {6}}, {DType::bf16, {12}}}), Code::type);
  EXPECT_EQ(refusal(parts(2), {kSum, {DType::f32, {12}}, {DType::f64, {3}}}), Code::type);
  EXPECT_EQ(refusal(parts(2), {kSum, {DType::f32, {12}}, {DType::f32, {2}}}), Code::type);
}

}  // namespace
}  // namespace protrain::test::accumulate_test
