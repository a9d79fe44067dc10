// Tensors without elements. Folding makes them constants, and drops them from a Concat.
#include <gtest/gtest.h>

#include "errors.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::empty_test {
namespace {

ValueId nothing(HandBuilt &b, const Shape &shape) { return b.constant(Array::filled({DType::f64, shape}, 0)); }

Graph folded(const Graph &before) {
  Graph graph = before;
  passes::fold(graph);
  graph::verify(graph);
  expect_same_results(before, graph);
  return graph;
}

TEST(Empty, PartsOfAConcatAreLeftOut) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 4}), y = b.input("y", {2, 1, 4}), past = nothing(b, {2, 0, 4});
  const Attributes along = {{"axis", std::int64_t{1}}};
  b.graph.outputs = {b.add("Neg", {b.add("Concat", {past, x}, along)}), b.add("Concat", {x, past, y}, along)};
  const Graph graph = folded(b.graph);
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Neg", 1}, {"Concat", 1}}));
  EXPECT_EQ(only(graph, "Concat").inputs.size(), 2u);
}

TEST(Empty, PartsOfAConcatMustFitAllTheSame) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 4}), other = nothing(b, {2, 0, 5});
  const graph::NodeId id =
      b.graph.add_node({.op = "Concat", .attributes = {{"axis", std::int64_t{1}}}, .inputs = {other, x}}, {"y"});
  b.graph.outputs = {b.graph.node(id).outputs[0]};
  EXPECT_EQ(code_of([&] { passes::fold(b.graph); }), Code::shape);
}

TEST(Empty, PartsOfASplitAreConstants) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4});
  const auto split = [&](const Integers &sizes) {
    return b.add_all("Split", {x}, {{"axis", std::int64_t{1}}, {"split", sizes}}, sizes.size());
  };
  for (const Integers &sizes : {Integers{0, 1, 3}, Integers{4, 0}})
    for (const ValueId part : split(sizes)) b.graph.outputs.push_back(b.add("Neg", {part}));
  const Graph graph = folded(b.graph);
  EXPECT_EQ(only(graph, "Split").outputs.size(), 2u);
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Split", 1}, {"Neg", 3}}));
}

TEST(Empty, ResultsNeedNoNodesWhateverTheyAreComputedFrom) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4}), none = b.slice(x, 1, 2, 2);
  const ValueId scaled = b.add("Mul", {b.add("Exp", {none}), b.number(2)});
  b.graph.outputs = {b.add("Softmax", {scaled}, {{"axis", std::int64_t{1}}}), b.transpose(scaled, {1, 0})};
  const Graph graph = folded(b.graph);
  EXPECT_EQ(graph.node_count(), 0u);
  EXPECT_EQ(graph.value(graph.outputs[1]).type.shape, (Shape{0, 2}));
}

TEST(Empty, SumsAreZero) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4}), none = b.slice(x, 1, 0, 0);
  const ValueId product = b.add("MatMul", {none, b.slice(x, 1, 3, 3)}, {{"trans_b", std::int64_t{1}}});
  b.graph.outputs = {b.add("ReduceSum", {none}, {{"axes", Integers{1}}, {"keepdims", std::int64_t{0}}}), product};
  const Graph graph = folded(b.graph);
  EXPECT_EQ(graph.node_count(), 0u);
  EXPECT_EQ(graph.value(graph.outputs[0]).array.doubles(), (std::vector<double>{0, 0}));
}

// A convolution that reads no elements adds nothing to its bias.
TEST(Empty, ConvolutionsOfNothingAreTheirBiases) {
  HandBuilt b;
  const ValueId none = b.input("none", {2, 0, 5}), short_one = b.input("short", {2, 3, 0}),
                bias = b.parameter("b", {4});
  const Attributes padded = {{"pads", Integers{1, 1}}};
  b.graph.outputs = {b.add("Conv", {none, b.parameter("v", {4, 0, 3}), bias}),
                     b.add("Conv", {short_one, b.parameter("w", {4, 3, 2}), bias}, padded),
                     b.add("ConvTranspose", {none, b.parameter("t", {0, 4, 3}), bias}),
                     b.add("ConvTranspose", {none, b.parameter("u", {0, 4, 3})})};
  const auto found = histogram(folded(b.graph));
  EXPECT_FALSE(found.contains("Conv") || found.contains("ConvTranspose"));
}

// Attention of com.microsoft with an empty cache must give the results of attention without one.
TEST(Empty, CachesChangeNothing) {
  const auto results_with = [](const std::string &op, const std::vector<Shape> &shapes, const Attributes &attributes,
                               std::size_t outputs) {
    HandBuilt b;
    graph::Node node{.op = "com.microsoft::" + op, .attributes = attributes};
    for (const Shape &shape : shapes)
      node.inputs.push_back(shape.empty()               ? ValueId::none
                            : element_count(shape) == 0 ? nothing(b, shape)
                                                        : b.input("x", shape));
    const graph::NodeId id = b.graph.add_node(node, std::vector<std::string>(outputs, "y"));
    b.graph.outputs = b.graph.node(id).outputs;
    passes::fold(b.graph);
    graph::verify(b.graph);
    return results(b.graph);
  };
  const Attributes heads = {{"num_heads", std::int64_t{2}}, {"unidirectional", std::int64_t{1}}};
  const Shape q = {2, 4, 6}, past = {2, 2, 0, 3};
  EXPECT_EQ(results_with("MultiHeadAttention", {q, q, q, {}, {}, {}, past, past}, heads, 3)[0],
            results_with("MultiHeadAttention", {q, q, q}, heads, 1)[0]);
  EXPECT_EQ(results_with("Attention", {q, {6, 18}, {18}, {}, {2, 2, 2, 0, 3}}, heads, 2),
            results_with("Attention", {q, {6, 18}, {18}}, heads, 2));
  const Attributes groups = {{"num_heads", std::int64_t{2}}, {"kv_num_heads", std::int64_t{2}}};
  EXPECT_EQ(results_with("GroupQueryAttention", {q, q, q, past, past, {2}, {1}}, groups, 3)[0],
            results_with("GroupQueryAttention", {q, q, q, {}, {}, {2}, {1}}, groups, 3)[0]);
}

}  // namespace
}  // namespace protrain::test::empty_test
