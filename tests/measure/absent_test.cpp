// Kernels with absent operands must be timed like others. Tests leave out each subset of a node's optional inputs, and
// each subset of its outputs.
#include <gtest/gtest.h>

#include "every_kernel.h"
#include "measure/measure.h"
#include "ops/op.h"

namespace protrain::measure::absent_test {
namespace {

using test::OneNode;

// A graph with only this node.
graph::Graph graph_of(const OneNode &one) {
  graph::Graph graph;
  graph::Node node{.op = one.op, .name = one.op, .attributes = one.attributes, .inputs = {}, .outputs = {}};
  for (const graph::Array &input : one.inputs)
    node.inputs.push_back(input.dtype() == DType::none
                              ? graph::ValueId::none
                              : graph.add_value({.name = "x", .type = input.type(), .origin = graph::Origin::input}));
  const std::vector<graph::Type> types = test::infer(one);
  for (std::size_t i = 0; i < one.outputs.size(); ++i)
    node.outputs.push_back(one.outputs[i] ? graph.add_value({.name = "y", .type = types.at(i)}) : graph::ValueId::none);
  graph.add_node(node);
  return graph;
}

TEST(MeasureAbsentOperands, AreNeitherReadNorWritten) {
  std::vector<graph::Graph> graphs;
  std::vector<OneNode> nodes = test::every_kernel();
  std::ranges::copy(test::document_nodes(), std::back_inserter(nodes));
  for (const OneNode &whole : nodes)
    for (const OneNode &node : test::without_inputs(whole))
      for (const OneNode &part : test::without_outputs(node)) graphs.push_back(graph_of(part));
  const backend::Optimizer optimizer;
  const auto device = backend::open("cpu", 2);
  run::Kernels kernels(*device);
  Request request{.graphs = {}, .optimizer = optimizer, .memory = 1 << 30};
  for (const graph::Graph &graph : graphs) request.graphs.push_back(&graph);
  profile::Profile profile = describe(device->info());
  EXPECT_TRUE(measure(*device, kernels, request, profile, nullptr));
  for (const graph::Graph &graph : graphs)
    EXPECT_TRUE(profile.kernels.contains(ops::signature(graph, graph.nodes()[0]))) << graph.print();
}

}  // namespace
}  // namespace protrain::measure::absent_test
