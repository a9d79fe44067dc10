#include <gtest/gtest.h>

#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::clean_up_test {

namespace {

using Histogram = std::map<std::string, int>;

Histogram histogram_of_cleaned(const Graph &before) {
  Graph graph = before;
  passes::clean_up(graph);
  graph::verify(graph);
  expect_same_results(before, graph);
  return histogram(graph);
}

}  // namespace

TEST(CleanUp, TransposesCancelAndReshapesMerge) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 4});
  const ValueId there = b.transpose(b.transpose(x, {0, 2, 1}), {0, 2, 1});
  b.graph.outputs = {b.add("Exp", {b.reshape(b.reshape(b.reshape(there, {6, 4}), {24}), {2, 3, 4})})};
  EXPECT_EQ(histogram_of_cleaned(b.graph), (Histogram{{"Exp", 1}}));
}

TEST(CleanUp, ReshapesAroundATransposeBecomeATranspose) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 4, 5});
  b.graph.outputs = {b.reshape(b.transpose(b.reshape(x, {6, 4, 5}), {0, 2, 1}), {2, 3, 5, 4})};
  EXPECT_EQ(histogram_of_cleaned(b.graph), (Histogram{{"Transpose", 1}}));
  HandBuilt other;  // its Reshape splits an axis, so Reshape and Transpose both stay
  other.graph.outputs = {other.transpose(other.reshape(other.input("x", {2, 12}), {2, 3, 4}), {0, 2, 1})};
  EXPECT_EQ(histogram_of_cleaned(other.graph), (Histogram{{"Reshape", 1}, {"Transpose", 1}}));
}

TEST(CleanUp, ATransposeOfSingleElementsIsAReshape) {
  HandBuilt b;
  b.graph.outputs = {b.transpose(b.input("x", {2, 1, 4, 5}), {0, 2, 1, 3})};
  EXPECT_EQ(histogram_of_cleaned(b.graph), (Histogram{{"Reshape", 1}}));
}

TEST(CleanUp, NeutralElementsGoUnlessTheyStretch) {
  HandBuilt b;
  ValueId x = b.input("x", {2, 3});
  x = b.add("Mul", {x, b.number(1)});
  x = b.add("Add", {b.number(0), x});
  x = b.add("Div", {x, b.number(1)});
  b.graph.outputs = {b.add("Exp", {b.add("Sub", {x, b.number(0)})})};
  EXPECT_EQ(histogram_of_cleaned(b.graph), (Histogram{{"Exp", 1}}));
  HandBuilt c;
  const ValueId y = c.input("y", {1, 3});
  c.graph.outputs = {c.add("Mul", {y, c.constant(Array::filled({DType::f64, {2, 1}}, 1))}),
                     c.add("Sub", {c.number(0), y})};
  EXPECT_EQ(histogram_of_cleaned(c.graph), (Histogram{{"Mul", 1}, {"Sub", 1}}));
}

TEST(CleanUp, EqualNodesAreComputedOnce) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3});
  b.graph.outputs = {b.add("Add", {b.add("Exp", {b.add("Neg", {x})}), b.add("Exp", {b.add("Neg", {x})})})};
  EXPECT_EQ(histogram_of_cleaned(b.graph), (Histogram{{"Add", 1}, {"Exp", 1}, {"Neg", 1}}));
}

TEST(CleanUp, OutputsKeepTheirNames) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3});
  const ValueId last = b.reshape(b.add("Exp", {x}), {2, 3});
  b.graph.outputs = {last};
  Graph graph = b.graph;
  passes::clean_up(graph);
  EXPECT_EQ(histogram(graph), (Histogram{{"Exp", 1}}));
  EXPECT_EQ(graph.outputs, std::vector{last});
}

}  // namespace protrain::test::clean_up_test
