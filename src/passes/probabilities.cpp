#include "passes/probabilities.h"

#include <fmt/format.h>

#include <ranges>
#include <vector>

namespace protrain::passes {

using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::Type;
using graph::Value;
using graph::ValueId;

Probabilities::Probabilities(graph::Graph &graph, ValueId value, std::optional<std::size_t> class_axis)
    : LossNodes(graph),
      of_classes_(class_axis.has_value()),
      trail_(trail_to(graph, value, class_axis, [this](ValueId id) { return producer(id); })) {}

std::string Probabilities::place() const {
  return trail_.maker ? fmt::format("{} at {}", trail_.maker->op, trail_.maker->name) : "";
}

ValueId Probabilities::logits() {
  ValueId logits = before_moves();
  if (logits == ValueId::none) return logits;
  for (const Node &move : std::views::reverse(trail_.moves)) {
    const Type type = graph_.value(move.outputs.at(0)).type;
    logits = emit(move.op, {logits}, move.attributes);
    graph_.value(logits).type = type;
  }
  return logits;
}

const Node *Probabilities::producer(ValueId id) const {
  const NodeId producer = graph_.value(id).producer;
  return producer == NodeId::none ? nullptr : &graph_.node(producer);
}

bool Probabilities::is_stored_number(ValueId id) const {
  const Value &value = graph_.value(id);
  return (value.origin == Origin::initializer || value.origin == Origin::constant) &&
         element_count(value.type.shape) == 1;
}

// Returns the logits of trail_.maker, the node that computes the probabilities. They have the shape of the maker's
// output, which the nodes in trail_.moves have not changed yet. Returns none if the maker has no logits.
ValueId Probabilities::before_moves() {
  if (!trail_.maker) return ValueId::none;
  const Node &maker = *trail_.maker;  // the trail's own copy, so it outlives what emit() adds
  if (of_classes_ ? trail_.normalizes_axis : maker.op == "Sigmoid") return maker.inputs.at(0);
  return of_classes_ && maker.op == "Concat" && maker.inputs.size() == 2 ? of_two_classes(maker) : ValueId::none;
}

// Returns the logits of two classes if the Concat joins 1 - p and p along the class axis, and p = Sigmoid(z). Exporters
// of binary classifiers write such a Concat. Its result equals the Softmax of 0 and z, so these two are the logits. The
// file's weights have not been read yet, so any stored single number is taken for the 1 in 1 - p.
ValueId Probabilities::of_two_classes(const Node &concat) {
  const Type type = graph_.value(concat.outputs.at(0)).type;
  const std::int64_t joined = concat.attributes.integer("axis", 0);
  const std::size_t axis = resolve_axis(joined, type.shape.size(), concat.name);
  if (trail_.axis != axis || type.shape[axis] != 2) return ValueId::none;
  for (const std::size_t second : {1, 0}) {
    const ValueId p = concat.inputs[second];
    const Node *sigmoid = producer(p), *rest = producer(concat.inputs[1 - second]);
    if (sigmoid == nullptr || sigmoid->op != "Sigmoid" || rest == nullptr || rest->op != "Sub") continue;
    if (rest->inputs.at(1) != p || !is_stored_number(rest->inputs[0])) continue;
    std::vector<ValueId> logits(2, sigmoid->inputs.at(0));
    logits[1 - second] = emit("Mul", {logits[second], real(0)});
    const ValueId both = emit("Concat", logits, {{"axis", joined}});
    graph_.value(both).type = type;
    return both;
  }
  return ValueId::none;
}

}  // namespace protrain::passes
