#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::matmul_test {
namespace {

const std::int64_t kOff = 0, kOn = 1;

TEST(MatMulOp, MultipliesMatrices) {
  const Array a = Array::from_doubles({DType::f64, {2, 3}}, {1, 2, 3, 4, 5, 6});
  const Array b = Array::from_doubles({DType::f64, {3, 1}}, {1, 0, -1});
  EXPECT_EQ(evaluate("MatMul", {}, {a, b})[0].doubles(), (std::vector<double>{-2, -2}));
  const Array bias = Array::from_doubles({DType::f64, {1}}, {10});
  EXPECT_EQ(evaluate("MatMul", {{"alpha", 2.0}}, {a, b, bias})[0].doubles(), (std::vector<double>{6, 6}));
}

TEST(MatMulOp, TakesVectorsAndBroadcastsBatches) {
  EXPECT_EQ(evaluate("MatMul", {}, {random_doubles({3}, 1), random_doubles({3}, 2)})[0].shape(), Shape{});
  EXPECT_EQ(evaluate("MatMul", {}, {random_doubles({2, 3}, 1), random_doubles({3}, 2)})[0].shape(), Shape{2});
  EXPECT_EQ(evaluate("MatMul", {}, {random_doubles({5, 1, 2, 3}, 1), random_doubles({4, 3, 7}, 2)})[0].shape(),
            (Shape{5, 4, 2, 7}));
}

TEST(MatMulOp, GradientMatchesFiniteDifferencesForEveryTransposition) {
  for (const std::int64_t ta : {kOff, kOn})
    for (const std::int64_t tb : {kOff, kOn})
      for (const Shape &batch : {Shape{}, Shape{2}, Shape{3, 1}}) {
        Shape a = batch, b = batch;
        a.insert(a.end(), {ta ? 5 : 2, ta ? 2 : 5});
        b.insert(b.end(), {tb ? 3 : 5, tb ? 5 : 3});
        const Attributes attributes = {{"trans_a", ta}, {"trans_b", tb}, {"alpha", 0.5}};
        expect_gradient({.op = "MatMul",
                         .attributes = attributes,
                         .inputs = {random_doubles(a, 1), random_doubles(b, 2), random_doubles({3}, 3)}});
      }
}

TEST(MatMulOp, GradientSumsOverBroadcastBatches) {
  expect_gradient({.op = "MatMul", .inputs = {random_doubles({2, 3, 4}, 1), random_doubles({4, 5}, 2)}});
  expect_gradient({.op = "MatMul", .inputs = {random_doubles({4, 5}, 1), random_doubles({2, 5, 3}, 2)}});
  expect_gradient({.op = "MatMul", .inputs = {random_doubles({2, 1, 3, 4}, 1), random_doubles({3, 4, 1}, 2)}});
  expect_gradient({.op = "MatMul",
                   .attributes = {{"trans_b", kOn}},
                   .inputs = {random_doubles({2, 3, 4}, 1), random_doubles({5, 4}, 2), random_doubles({5}, 3)}});
}

TEST(MatMulOp, AddsABiasOrAMatrixOfItsResultsShape) {
  const auto added = [](const Shape &shape) {
    return GradientCase{.op = "MatMul",
                        .attributes = {{"alpha", -2.0}},
                        .inputs = {random_doubles({2, 3, 4}, 1), random_doubles({4, 5}, 2), random_doubles(shape, 3)}};
  };
  expect_gradient(added({2, 3, 5}));
  const auto refused = [&](const Shape &shape) {
    return code_of([&] { evaluate("MatMul", {}, added(shape).inputs); });
  };
  EXPECT_EQ(refused({3, 5}), Code::shape);
  EXPECT_EQ(refused({1, 5}), Code::shape);
  EXPECT_EQ(refused({4}), Code::shape);
}

TEST(MatMulOp, MakesTheGradientOfASharedWeightInOneProduct) {
  OneNodeGraph one({.op = "MatMul", .inputs = {random_doubles({2, 3, 4}, 1), random_doubles({4, 5}, 2)}, .fixed = {0}});
  one.differentiate();
  EXPECT_EQ(std::ranges::count(one.graph.nodes(), "MatMul", &Node::op), 2) << "the forward product and one more";
  EXPECT_EQ(std::ranges::count(one.graph.nodes(), "ReduceSum", &Node::op), 0);
}

TEST(MatMulOp, RefusesShapesThatDoNotFit) {
  const auto refused = [](const Shape &a, const Shape &b) {
    return code_of([&] { evaluate("MatMul", {}, {random_doubles(a, 1), random_doubles(b, 2)}); });
  };
  EXPECT_EQ(refused({2, 3}, {4, 2}), Code::shape);
  EXPECT_EQ(refused({2, 2, 3}, {3, 3, 2}), Code::shape);
  EXPECT_EQ(refused({}, {3}), Code::shape);
}

TEST(GemmOp, AddsTheStretchedThirdOperand) {
  const Array a = Array::from_doubles({DType::f64, {2, 1}}, {1, 2}),
              b = Array::from_doubles({DType::f64, {3, 1}}, {1, 2, 3});
  const Array c = Array::from_doubles({DType::f64, {2, 1}}, {10, 20});
  EXPECT_EQ(evaluate("Gemm", {{"transB", kOn}, {"alpha", 2.0}, {"beta", 0.5}}, {a, b, c})[0].doubles(),
            (std::vector<double>{7, 9, 11, 14, 18, 22}));
}

}  // namespace
}  // namespace protrain::test::matmul_test
