#include <gtest/gtest.h>

#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::blocks_test {

namespace {

// A layer: normalization, a product to a larger width, an activation, a product back to the width, a residual.
ValueId layer(HandBuilt &b, ValueId x, int number) {
  const std::string name = "layer" + std::to_string(number);
  const ValueId norm =
      b.add_all("RMSNormalization", {x, b.parameter(name + ".norm", {8})}, {{"axis", std::int64_t{1}}}, 2)[0];
  const ValueId wide = b.add("MatMul", {norm, b.parameter(name + ".up", {8, 32})});
  const ValueId active = b.add("Gelu", {wide}, {{"approximate", std::string("none")}});
  return b.add("Add", {x, b.add("MatMul", {active, b.parameter(name + ".down", {32, 8})})});
}

Graph layers(int count) {
  HandBuilt b;
  ValueId x = b.add("Add", {b.add("Exp", {b.input("x", {4, 8})}), b.parameter("positions", {4, 8})});
  for (int i = 0; i < count; ++i) x = layer(b, x, i);
  const ValueId norm = b.add_all("RMSNormalization", {x, b.parameter("norm", {8})}, {{"axis", std::int64_t{1}}}, 2)[0];
  b.graph.outputs = {b.add("MatMul", {norm, b.parameter("head", {8, 32})})};
  return b.graph;
}

// Like layers(), but all layers read a value `shared`. In real files this is a mask, or the bias of positions. The
// first layer computes `shared` from an input and a parameter, and each layer adds it to its wide product. Each layer
// also multiplies by a factor, but computes this factor from the input anew.
Graph layers_that_share(int count) {
  HandBuilt b;
  const ValueId mask = b.input("mask", {4, 1});
  ValueId x = b.add("Add", {b.add("Exp", {b.input("x", {4, 8})}), b.parameter("positions", {4, 8})});
  ValueId shared = ValueId::none;
  for (int i = 0; i < count; ++i) {
    const std::string name = "layer" + std::to_string(i);
    const ValueId wide = b.add("MatMul", {x, b.parameter(name + ".up", {8, 32})});
    if (i == 0) shared = b.add("Mul", {b.add("Exp", {b.parameter("bias", {4, 32})}), b.add("Tanh", {mask})});
    const ValueId active = b.add("Mul", {b.add("Add", {wide, shared}), b.add("Exp", {mask})});
    x = b.add("Add", {x, b.add("MatMul", {active, b.parameter(name + ".down", {32, 8})})});
  }
  b.graph.outputs = {b.add("MatMul", {x, b.parameter("head", {8, 16})})};
  return b.graph;
}

}  // namespace

TEST(Blocks, AreTheLayersCutAtTheResidual) {
  for (int count : {2, 3, 12}) {
    Graph graph = layers(count);
    ASSERT_EQ(passes::find_blocks(graph), count);
    for (std::size_t i = 0; i < graph.node_count(); ++i) {
      const bool inside = i >= 2 && i < 2 + 5 * static_cast<std::size_t>(count);
      EXPECT_EQ(graph.nodes()[i].block, inside ? static_cast<int>(i - 2) / 5 : -1) << graph.print();
    }
  }
}

TEST(Blocks, HaveNothingThatTheFirstLayerComputesForAll) {
  for (int count : {2, 3, 12}) {
    Graph graph = layers_that_share(count);
    ASSERT_EQ(passes::find_blocks(graph), count);
    graph::verify(graph);
    for (std::size_t i = 0; i < graph.node_count(); ++i) {
      const bool inside = i >= 5 && i < 5 + 6 * static_cast<std::size_t>(count);
      EXPECT_EQ(graph.nodes()[i].block, inside ? static_cast<int>(i - 5) / 6 : -1) << graph.print();
    }
  }
}

TEST(Blocks, OneLayerIsNone) {
  Graph graph = layers(1);
  EXPECT_EQ(passes::find_blocks(graph), 0);
  for (const graph::Node &node : graph.nodes()) EXPECT_EQ(node.block, -1);
}

}  // namespace protrain::test::blocks_test
