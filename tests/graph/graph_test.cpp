#include "graph/graph.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace protrain::graph::graph_test {
namespace {

ValueId input(Graph &graph, const std::string &name) {
  const ValueId id = graph.add_value({.name = name, .type = {DType::f32, {2}}, .origin = Origin::input});
  graph.inputs.push_back(id);
  return id;
}

// Appends a node of `op` with one output of type float32[2]. Returns the output.
ValueId add(Graph &graph, const std::string &op, std::vector<ValueId> inputs) {
  const NodeId id = graph.add_node({.op = op, .name = op, .inputs = std::move(inputs)}, {op + "_out"});
  const ValueId out = graph.node(id).outputs[0];
  graph.value(out).type = {DType::f32, {2}};
  return out;
}

Code code_of_verify(const Graph &graph) {
  try {
    verify(graph);
  } catch (const Error &error) {
    return error.code;
  }
  return Code::ok;
}

TEST(Graph, MakesNamesUnique) {
  Graph graph;
  const ValueId a = input(graph, "x"), b = input(graph, "x"), c = input(graph, "");
  EXPECT_EQ(graph.value(a).name, "x");
  EXPECT_NE(graph.value(b).name, "x");
  EXPECT_FALSE(graph.value(c).name.empty());
  EXPECT_EQ(graph.find(graph.value(b).name), b);
  EXPECT_EQ(graph.find("nothing"), ValueId::none);
}

TEST(Graph, NamesItsReadersInOrder) {
  Graph graph;
  const ValueId x = input(graph, "x");
  const ValueId a = add(graph, "Neg", {x});
  const ValueId b = add(graph, "Add", {x, a});
  graph.outputs = {b};
  const auto readers = graph.consumers();
  EXPECT_EQ(readers[index(x)], (std::vector<NodeId>{NodeId{0}, NodeId{1}}));
  EXPECT_EQ(readers[index(a)], (std::vector<NodeId>{NodeId{1}}));
  EXPECT_TRUE(readers[index(b)].empty());
}

TEST(Graph, ReplacesAValueForReadersAndOutputs) {
  Graph graph;
  const ValueId x = input(graph, "x"), y = input(graph, "y");
  add(graph, "Neg", {x});
  graph.outputs = {x};
  graph.replace_uses(x, y);
  EXPECT_EQ(graph.nodes()[0].inputs, (std::vector<ValueId>{y}));
  EXPECT_EQ(graph.outputs, (std::vector<ValueId>{y}));
}

TEST(Graph, DropsChainsThatNobodyReads) {
  Graph graph;
  const ValueId x = input(graph, "x");
  const ValueId dead = add(graph, "Neg", {x});
  add(graph, "Exp", {dead});
  const ValueId kept = add(graph, "Abs", {x});
  graph.outputs = {kept};
  graph.drop_dead_nodes();
  ASSERT_EQ(graph.node_count(), 1u);
  EXPECT_EQ(graph.nodes()[0].op, "Abs");
  EXPECT_EQ(graph.value(dead).producer, NodeId::none);
  EXPECT_EQ(graph.value(kept).producer, NodeId{0});
  EXPECT_EQ(code_of_verify(graph), Code::ok);
}

TEST(Graph, SortsProducersFirstAndKeepsTheOrderOtherwise) {
  Graph graph;
  const ValueId x = input(graph, "x");
  const ValueId late = graph.add_value({.name = "late", .type = {DType::f32, {2}}});
  const ValueId sum = add(graph, "Add", {late, x});
  const ValueId other = add(graph, "Exp", {x});
  graph.add_node({.op = "Neg", .name = "neg", .inputs = {x}, .outputs = {late}});
  graph.outputs = {sum, other};
  EXPECT_EQ(code_of_verify(graph), Code::internal);
  graph.sort();
  EXPECT_EQ(code_of_verify(graph), Code::ok);
  EXPECT_EQ(graph.nodes()[0].op, "Exp");
  EXPECT_EQ(graph.nodes()[1].op, "Neg");
  EXPECT_EQ(graph.nodes()[2].op, "Add");
}

TEST(Graph, NamesTheNodesOfACycle) {
  Graph graph;
  const ValueId x = input(graph, "x");
  const ValueId back = graph.add_value({.name = "back"});
  const ValueId a = add(graph, "Add", {x, back});
  graph.add_node({.op = "Neg", .name = "Neg", .inputs = {a}, .outputs = {back}});
  add(graph, "Exp", {a});
  try {
    graph.sort();
    FAIL();
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::graph);
    EXPECT_NE(error.text.find("Add -> Neg -> Add"), std::string::npos) << error.text;
  }
}

TEST(Graph, PrintsALineANode) {
  Graph graph;
  const ValueId x = input(graph, "x");
  graph.add_node({.op = "Softmax",
                  .name = "s",
                  .attributes = {{"axis", std::int64_t{-1}}},
                  .inputs = {x, ValueId::none},
                  .block = 2},
                 {"y"});
  graph.value(graph.find("y")).type = {DType::f32, {2}};
  graph.outputs = {graph.find("y")};
  EXPECT_EQ(graph.print(),
            "input x float32[2]\n"
            "y = Softmax(x, -) {axis=-1} float32[2] block 2\n"
            "output y float32[2]\n");
}

TEST(Verify, RefusesUntypedValuesAndSecondWrites) {
  Graph untyped;
  const ValueId x = input(untyped, "x");
  untyped.add_node({.op = "Neg", .inputs = {x}}, {"y"});
  EXPECT_EQ(code_of_verify(untyped), Code::internal);

  Graph twice;
  const ValueId y = add(twice, "Neg", {input(twice, "x")});
  twice.add_node({.op = "Exp", .inputs = {twice.inputs[0]}, .outputs = {y}});
  EXPECT_EQ(code_of_verify(twice), Code::internal);
}

TEST(Attributes, AreTypedAndFallBack) {
  const Attributes attributes = {{"axis", std::int64_t{3}},
                                 {"epsilon", 0.5},
                                 {"mode", std::string("tanh")},
                                 {"perm", std::vector<std::int64_t>{1, 0}}};
  EXPECT_EQ(attributes.integer("axis", 7), 3);
  EXPECT_EQ(attributes.integer("nothing", 7), 7);
  EXPECT_EQ(attributes.real("epsilon", 0), 0.5);
  EXPECT_EQ(attributes.real("axis", 0), 3);  // an integer is read as a real
  EXPECT_EQ(attributes.text("mode", ""), "tanh");
  EXPECT_EQ(attributes.integers("perm"), (std::vector<std::int64_t>{1, 0}));
  EXPECT_TRUE(attributes.reals("perm2").empty());
  EXPECT_EQ(attributes.array("value"), nullptr);
  EXPECT_EQ(attributes.print(), "axis=3, epsilon=0.5, mode=tanh, perm=[1, 0]");
  EXPECT_THROW(attributes.integer("mode", 0), Error);
  EXPECT_THROW(attributes.integers("axis"), Error);
}

}  // namespace
}  // namespace protrain::graph::graph_test
