#include "grad/targets.h"

#include "ops/op.h"

namespace protrain::grad {

namespace {

using graph::Node;
using graph::NodeId;
using graph::ValueId;

// Returns which input of a loss node holds the targets.
std::size_t labels_of(const Node &loss) { return loss.op == "LinearCrossEntropy" ? 2 : 1; }

// Returns the node that makes the loss a mean over labels, or nullptr if there is none. There is none in a
// distillation: its targets are the logits of a teacher, which are floats, and no row is ignored.
const Node *mean_over_targets(const graph::Graph &graph, ValueId loss) {
  const Node *node = nullptr;
  for (NodeId at = graph.value(loss).producer; at != NodeId::none; at = graph.value(node->inputs[0]).producer) {
    node = &graph.node(at);
    if (node->op == "CrossEntropy" || node->op == "LinearCrossEntropy") {
      const bool labelled = is_integer(graph.value(node->inputs[labels_of(*node)]).type.dtype);
      return labelled && node->attributes.text("reduction", "mean") == "mean" ? node : nullptr;
    }
    if (!ops::is_alias(*node)) return nullptr;
  }
  return nullptr;
}

ValueId add_node(graph::Graph &graph, Node node) {
  const graph::Type type = ops::infer(graph, node).at(0);
  const std::string name = node.name;
  const NodeId id = graph.add_node(std::move(node), {name});
  const ValueId output = graph.node(id).outputs[0];
  graph.value(output).type = type;
  return output;
}

}  // namespace

std::optional<TargetCount> target_count(const graph::Graph &graph, ValueId loss) {
  const Node *mean = mean_over_targets(graph, loss);
  if (mean == nullptr) return std::nullopt;
  const std::size_t weights = mean->op == "LinearCrossEntropy" ? 4 : 2;
  TargetCount count{.inputs = {mean->inputs[labels_of(*mean)]}, .attributes = {}};
  if (mean->inputs.size() > weights && mean->inputs[weights] != ValueId::none)
    count.inputs.push_back(mean->inputs[weights]);
  if (mean->attributes.has("ignore_index"))
    count.attributes.set("ignore_index", mean->attributes.integer("ignore_index", 0));
  return count;
}

WeighedLoss weigh_loss(graph::Graph &forward, ValueId loss) {
  std::optional<TargetCount> count = target_count(forward, loss);
  if (!count) return {loss, ValueId::none};
  const std::string name = forward.value(loss).name;
  const ValueId weight = add_node(forward, {.op = "CountTargets",
                                            .name = name + "/weight",
                                            .attributes = std::move(count->attributes),
                                            .inputs = std::move(count->inputs),
                                            .outputs = {}});
  const ValueId counted = add_node(
      forward,
      {.op = "CountedLoss", .name = name + "/counted", .attributes = {}, .inputs = {loss, weight}, .outputs = {}});
  return {counted, weight};
}

}  // namespace protrain::grad
