#include "passes/trail.h"

namespace protrain::passes {

namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

// Returns the axis of shape `before` that a Reshape turns into axis `axis` of shape `after`. Returns an empty optional
// if the Reshape splits or joins that axis.
std::optional<std::size_t> axis_before(const Shape &before, const Shape &after, std::size_t axis) {
  const auto count = [](const Shape &shape, std::size_t end) {
    return element_count(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(end)));
  };
  for (std::size_t i = 0; i < before.size(); ++i)
    if (before[i] == after[axis] && count(before, i) == count(after, axis)) return i;
  return std::nullopt;
}

bool is_move(const Node &node) {
  return node.inputs.size() == 1 &&
         (node.op == "Transpose" || node.op == "Reshape" || node.op == "Slice" || node.op == "Cast");
}

// Returns the axis of the move's input that becomes axis `axis` of its output.
std::optional<std::size_t> axis_before(const Graph &graph, const Node &move, std::size_t axis) {
  const Shape &before = graph.value(move.inputs[0]).type.shape, &after = graph.value(move.outputs[0]).type.shape;
  if (move.op == "Transpose") {
    const std::vector<std::int64_t> perm = move.attributes.integers("perm");
    return perm.empty() ? after.size() - 1 - axis : static_cast<std::size_t>(perm.at(axis));
  }
  if (move.op == "Reshape") return axis_before(before, after, axis);
  if (move.op == "Slice" && before.at(axis) != after.at(axis)) return std::nullopt;
  return axis;
}

}  // namespace

Trail trail_to(const Graph &graph, ValueId end, std::optional<std::size_t> axis,
               const std::function<const Node *(ValueId)> &producer) {
  Trail trail;
  const Node *node = producer(end);
  for (; node != nullptr && is_move(*node); node = producer(node->inputs[0])) {
    if (axis) axis = axis_before(graph, *node, *axis);
    trail.moves.push_back(*node);
  }
  if (node == nullptr) return trail;
  trail.maker = *node;
  trail.axis = axis;
  if (!axis || (node->op != "Softmax" && node->op != "LogSoftmax")) return trail;
  const std::size_t rank = graph.value(node->outputs[0]).type.shape.size();
  trail.normalizes_axis = *axis == resolve_axis(node->attributes.integer("axis", -1), rank, node->name);
  return trail;
}

}  // namespace protrain::passes
