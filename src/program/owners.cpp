#include "program/owners.h"

#include "ops/op.h"

namespace protrain::program {

namespace {

using graph::ValueId;

// Returns the node that adds two parts of a parameter's gradient into `id`; nullptr: `id` is no sum.
const graph::Node *sum_into(const graph::Graph &graph, ValueId id) {
  const graph::NodeId producer = graph.value(id).producer;
  if (producer == graph::NodeId::none) return nullptr;
  const graph::Node &node = graph.node(producer);
  return node.op == "Add" || ops::works_in_place(node) ? &node : nullptr;
}

}  // namespace

std::vector<Owner> owners(const LoweringInput &source, const std::vector<ValueId> &roots) {
  const graph::Graph &graph = source.graph;
  std::vector<Owner> of(graph.value_count(), Owner::activations);
  for (const graph::Node &node : graph.nodes())
    for (ValueId out : node.outputs)
      if (out != ValueId::none && node.phase == graph::Phase::backward) of[index(out)] = Owner::activation_gradients;
  std::vector<ValueId> gradients;
  for (ValueId id : source.gradients)
    if (id != ValueId::none) gradients.push_back(id);
  while (!gradients.empty()) {
    const ValueId id = gradients.back(), root = roots[index(id)];
    gradients.pop_back();
    of[index(root)] = Owner::gradients;
    const graph::Node *sum = sum_into(graph, id);
    if (sum == nullptr) sum = sum_into(graph, root);
    if (sum != nullptr) gradients.insert(gradients.end(), {sum->inputs[0], sum->inputs[1]});
    const graph::NodeId producer = graph.value(id).producer;
    if (producer == graph::NodeId::none || !ops::is_between_ranks(graph.node(producer))) continue;
    gradients.insert(gradients.end(), graph.node(producer).inputs.begin(), graph.node(producer).inputs.end());
  }
  return of;
}

}  // namespace protrain::program
