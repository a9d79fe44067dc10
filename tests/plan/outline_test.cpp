#include "plan/outline.h"

#include <gtest/gtest.h>

#include "plan/layers.h"
#include "random_plans/bench.h"

namespace protrain::plan::outline_test {
namespace {

TEST(Outline, IsWhatAHandBuiltGraphHas) {
  const Layers layers(3);
  const profile::Profile machine = layers.machine();
  const Outline outline(layers.graph, Durations(machine, layers.graph, {}));
  ASSERT_EQ(outline.blocks.size(), 3u);
  for (const Outline::Block &block : outline.blocks) {
    EXPECT_EQ(block.forward, Layers::kForward);
    EXPECT_EQ(block.backward, Layers::kBackward);
    EXPECT_EQ(block.saved, Layers::kInner) << "what no other block reads";
    EXPECT_EQ(block.border, Layers::kStream) << "what the next one reads";
    // A layer's backward holds two gradients of activations and the gradient of the weight at the same time. By then
    // the layer's output has been freed.
    EXPECT_EQ(block.transient, 2 * Layers::kStream + Layers::kWeight - Layers::kStream);
  }
  EXPECT_EQ(outline.forward, Layers::kHead);
  EXPECT_EQ(outline.backward, Layers::kHead);
  EXPECT_EQ(outline.outside, 0u);
  EXPECT_EQ(outline.head_transient, Layers::kStream) << "the loss's gradient";
  EXPECT_EQ(outline.block_of_parameter, (std::vector<int>{0, 1, 2}));
}

TEST(Outline, CountsWhatIsKeptOutsideOfBlocksAndWhatHasAnotherName) {
  // The graph has a Tanh outside of blocks, then a Reshape and an Exp in block 0. Backward reads the results of Exp and
  // Reshape. The Reshape's result lies in the memory of the Tanh's result, so it counts outside of blocks.
  graph::Graph graph;
  const auto value = [&](const char *name, std::int64_t elements) {
    return graph.add_value({.name = name, .type = {DType::f32, {elements}}});
  };
  const graph::ValueId x = graph.add_value({.name = "x", .type = {DType::f32, {8}}, .origin = graph::Origin::input});
  const graph::ValueId a = value("a", 8), b = value("b", 8), c = value("c", 8), d = value("d", 8), e = value("e", 8);
  graph.add_node({.op = "Tanh", .inputs = {x}, .outputs = {a}});
  graph.add_node({.op = "Reshape", .inputs = {a}, .outputs = {b}, .block = 0});
  graph.add_node({.op = "Exp", .inputs = {b}, .outputs = {c}, .block = 0});
  graph.add_node({.op = "Mul", .inputs = {c, c}, .outputs = {d}, .block = 0, .phase = graph::Phase::backward});
  graph.add_node({.op = "Mul", .inputs = {d, b}, .outputs = {e}, .phase = graph::Phase::backward});
  const profile::Profile machine{.fp32_flops = 1, .device_bandwidth = 1, .device_optimizer = 1};
  const Outline outline(graph, Durations(machine, graph, {}));
  ASSERT_EQ(outline.blocks.size(), 1u);
  EXPECT_EQ(outline.outside, 32u) << "a, once";
  EXPECT_EQ(outline.blocks[0].saved, 32u) << "c";
  EXPECT_EQ(outline.blocks[0].border, 0u);
}

TEST(Outline, HasEveryNodesSecondsInOneOfItsSums) {
  for (const std::string &model : test::kModels) {
    const graph::Graph graph = test::training_graph(model);
    const profile::Profile machine = profile::known_machine("rtx3090");
    const Durations durations(machine, graph, {});
    double forward = 0, backward = 0, all = 0;
    const Outline outline(graph, durations);
    for (const Outline::Block &block : outline.blocks) {
      EXPECT_GT(block.forward, 0) << model;
      // A quantised weight is frozen: backward makes a gradient of the products' inputs only, not of the weights.
      EXPECT_GT(block.backward, block.forward * (model.starts_with("quantised/") ? 0.5 : 1)) << model;
      EXPECT_GT(block.saved, 0u) << model;
      EXPECT_GT(block.border, 0u) << model;
      EXPECT_GT(block.cheap, 0u) << model;
      EXPECT_LT(block.cheap, block.saved) << model;
      EXPECT_GT(block.again, 0) << model;
      EXPECT_LT(block.again, block.forward) << model;
      forward += block.forward;
      backward += block.backward;
    }
    for (std::size_t n = 0; n < graph.node_count(); ++n) all += durations.run(static_cast<graph::NodeId>(n));
    EXPECT_NEAR(forward + backward + outline.forward + outline.backward, all, 1e-9 * all) << model;
    EXPECT_EQ(outline.block_of_parameter.size(), graph.parameters.size()) << model;
    EXPECT_EQ(outline.blocks.size(), static_cast<std::size_t>(count_blocks(graph))) << model;
  }
}

TEST(Outline, KeepsWhatTheProgramOfTheResidentPlanKeeps) {
  // The blocks are equal, so each keeps the same number of bytes for backward. The bytes of all blocks, and of the
  // values outside of blocks, add up to the memory that is held when backward begins.
  const graph::Graph graph = test::training_graph("gpt2-dynamic-opset18");
  const profile::Profile machine = profile::known_machine("rtx3090");
  const Outline outline(graph, Durations(machine, graph, {}));
  std::uint64_t sums = outline.outside, values = 0;
  for (const Outline::Block &block : outline.blocks) {
    EXPECT_EQ(block.saved, outline.blocks[0].saved);
    sums += block.saved + block.border;
  }
  std::vector<bool> read(graph.value_count(), false);
  std::vector<std::size_t> root(graph.value_count());
  for (std::size_t v = 0; v < root.size(); ++v) root[v] = v;
  for (const graph::Node &node : graph.nodes()) {
    if (node.op == "Reshape") root[index(node.outputs[0])] = root[index(node.inputs[0])];
    if (node.phase == graph::Phase::backward)
      for (graph::ValueId in : node.inputs)
        if (in != graph::ValueId::none) read[root[index(in)]] = true;
  }
  for (const graph::Node &node : graph.nodes())
    for (graph::ValueId out : node.outputs)
      if (node.phase == graph::Phase::forward && out != graph::ValueId::none && read[index(out)])
        values += byte_count(graph.value(out).type.dtype, graph.value(out).type.shape);
  EXPECT_EQ(sums, values);
}

TEST(Outline, OfAGraphWithoutBlocksIsAllOutside) {
  graph::Graph graph = test::training_graph("gpt2-dynamic-opset18");
  std::vector<graph::Node> nodes = graph.nodes();
  for (graph::Node &node : nodes) node.block = -1;
  graph.set_nodes(std::move(nodes));
  const profile::Profile machine = profile::known_machine("rtx3090");
  const Outline outline(graph, Durations(machine, graph, {}));
  EXPECT_TRUE(outline.blocks.empty());
  EXPECT_GT(outline.outside, 0u);
  EXPECT_GT(outline.forward, 0);
  EXPECT_EQ(outline.block_of_parameter, std::vector<int>(graph.parameters.size(), -1));
}

}  // namespace
}  // namespace protrain::plan::outline_test
