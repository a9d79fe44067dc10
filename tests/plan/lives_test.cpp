#include "plan/lives.h"

#include <gtest/gtest.h>

#include <set>

#include "plan/outline.h"
#include "random_plans/bench.h"

namespace protrain::plan::lives_test {
namespace {

using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::ValueId;

std::set<std::string> operators_of_cheap_values(const Graph &graph) {
  const Lives lives(graph);
  std::set<std::string> ops;
  for (const Node &node : graph.nodes())
    for (ValueId out : node.outputs)
      if (out != ValueId::none && lives.cheap(index(out))) ops.insert(node.op);
  return ops;
}

TEST(Lives, OfATransformerCallNormalizationsAndActivationsLight) {
  const std::set<std::string> gpt2 = operators_of_cheap_values(test::training_graph("gpt2-dynamic-opset18"));
  EXPECT_EQ(gpt2, (std::set<std::string>{"Gelu", "LayerNormalization"}));
  const std::set<std::string> llama = operators_of_cheap_values(test::training_graph("llama-dynamic-opset23"));
  EXPECT_EQ(llama, (std::set<std::string>{"Gated", "RMSNormalization"}));
}

TEST(Lives, CallNothingLightThatIsMadeOfWhatIsGone) {
  for (const std::string &model : test::kModels) {
    const Graph graph = test::training_graph(model);
    const Lives lives(graph);
    std::vector<bool> read_backward(graph.value_count(), false);
    std::vector<std::size_t> root(graph.value_count());
    for (std::size_t v = 0; v < root.size(); ++v) root[v] = v;
    for (const Node &node : graph.nodes()) {
      if (node.op == "Reshape") root[index(node.outputs[0])] = root[index(node.inputs[0])];
      for (ValueId in : node.inputs)
        if (in != ValueId::none && node.phase == Phase::backward) read_backward[root[index(in)]] = true;
    }
    std::size_t cheap = 0;
    for (const Node &node : graph.nodes())
      for (ValueId out : node.outputs) {
        if (out == ValueId::none || !lives.cheap(index(out))) continue;
        ++cheap;
        EXPECT_EQ(node.phase, Phase::forward);
        EXPECT_EQ(lives.owner(index(out)), node.block) << "what crosses the border between blocks stays";
        EXPECT_TRUE(read_backward[index(out)]) << "else there is nothing to compute again";
        for (ValueId in : node.inputs)
          if (in != ValueId::none) {
            const std::size_t of = root[index(in)];
            EXPECT_TRUE(graph.values()[of].origin != graph::Origin::node || read_backward[of])
                << model << ": " << node.op << " of " << graph.value(in).name;
          }
      }
    EXPECT_GT(cheap, 0u) << model;
  }
}

TEST(Lives, CallNothingLightOutsideOfBlocks) {
  Graph graph = test::training_graph("gpt2-dynamic-opset18");
  std::vector<Node> nodes = graph.nodes();
  for (Node &node : nodes) node.block = -1;
  graph.set_nodes(std::move(nodes));
  EXPECT_TRUE(operators_of_cheap_values(graph).empty());
}

TEST(Lives, CallNoProductOfTheseModelsLight) {
  for (const std::string &model : test::kModels)
    for (const std::string &op : operators_of_cheap_values(test::training_graph(model)))
      EXPECT_FALSE(op == "MatMul" || op == "FusedAttention" || op == "Gather") << model << ": " << op;
}

}  // namespace
}  // namespace protrain::plan::lives_test
