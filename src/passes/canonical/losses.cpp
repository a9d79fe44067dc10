// Rules for ONNX's classification losses.
#include <ranges>

#include "base/error.h"
#include "passes/canonical/canonical.h"
#include "passes/trail.h"

namespace protrain::passes {

namespace {

// Throws if the labels are no integers, or the scores have no axis of classes. ONNX defines the losses for integer
// labels alone, but PyTorch's exporters write them for labels that are probabilities too.
void require_classes(const Canonical &c, const Node &node, const Shape &scores) {
  const DType labels = c.type(node.inputs.at(1)).dtype;
  require(is_integer(labels), Code::type, node.name,
          "{} has labels of {}; ONNX has only integers, so export the model without its loss", node.op,
          name_of(labels));
  require(scores.size() >= 2, Code::shape, node.name, "{} of scores {}, which have no axis 1 for classes", node.op,
          to_text(scores));
}

// The labels of a loss. `classes` holds the class of each label, but 0 in place of an ignored label. `counted` is true
// for labels that are not ignored; it is ValueId::none if the node ignores no label.
struct Labels {
  ValueId classes, counted;
};
Labels labels_of(Canonical &c, const Node &node, ValueId labels) {
  if (!node.attributes.has("ignore_index")) return {labels, ValueId::none};
  const DType dtype = c.type(labels).dtype;
  const auto ignored = static_cast<double>(node.attributes.integer("ignore_index", 0));
  const ValueId counted = c.add("Not", {c.add("Equal", {labels, c.scalar(dtype, ignored)})});
  return {c.add("Where", {counted, labels, c.scalar(dtype, 0)}), counted};
}

// Returns the weight of each label's class.
ValueId weights_of(Canonical &c, const Node &node, ValueId classes) {
  return c.add("Gather", {node.inputs[2], classes}, {{"axis", std::int64_t{0}}});
}

// Replaces the node's first output by the CrossEntropy of scores (N, C, d...) and labels (N, d...). Scores and labels
// are first reshaped to (M, C) and (M), where M is the number of labels and C the number of classes.
void become_cross_entropy(Canonical &c, const Node &node, ValueId scores, ValueId labels) {
  const Shape shape = c.shape(scores);
  require_classes(c, node, shape);
  if (shape.size() > 2) {
    std::vector<std::int64_t> perm = {0};
    for (std::size_t i = 2; i < shape.size(); ++i) perm.push_back(static_cast<std::int64_t>(i));
    perm.push_back(1);
    scores = c.transpose(scores, perm);
  }
  const Shape label_shape = c.shape(labels);
  const std::int64_t rows = element_count(label_shape);
  require(rows * shape[1] == element_count(shape), Code::shape, node.name, "{} has labels {}, and scores {}", node.op,
          to_text(label_shape), to_text(shape));
  std::vector<ValueId> operands = {c.reshape(scores, {rows, shape[1]}), c.reshape(labels, {rows})};
  if (has(node, 2)) operands.push_back(weights_of(c, node, labels_of(c, node, operands[1]).classes));
  Attributes attributes = {{"reduction", node.attributes.text("reduction", "mean")}};
  if (node.attributes.has("ignore_index")) attributes.set("ignore_index", node.attributes.integer("ignore_index", 0));
  if (node.attributes.text("reduction", "mean") == "none" && label_shape.size() != 1) {
    const ValueId loss = c.add_all("CrossEntropy", operands, attributes, 2)[0];
    Node first = node;
    first.outputs.resize(1);
    c.become(first, "Reshape", {loss}, {{"shape", label_shape}});
    return;
  }
  Node both = node;
  both.outputs = {node.outputs.at(0), c.rewriter().new_value()};
  c.become(both, "CrossEntropy", operands, attributes);
}

// Replaces the node's first output by the loss in its general form: picks each target's log probability from (N, C,
// d...), multiplies it by the weight of the target's class, and takes 0 for ignored targets.
void become_picked(Canonical &c, const Node &node, ValueId log_probabilities) {
  const ValueId labels = node.inputs.at(1);
  const Type rows = {c.type(log_probabilities).dtype, c.shape(labels)};
  Shape expected = c.shape(log_probabilities);
  expected.erase(expected.begin() + 1);
  require(rows.shape == expected, Code::shape, node.name, "{} has labels {}, and scores for {}", node.op,
          to_text(rows.shape), to_text(expected));
  const auto filled = [&](DType dtype, double value) { return c.scalar(dtype, value); };
  const auto [safe, counted] = labels_of(c, node, labels);
  Shape column = rows.shape;
  column.insert(column.begin() + 1, 1);
  const ValueId at = c.reshape(safe, column);
  ValueId loss = c.add("GatherElements", {log_probabilities, at}, {{"axis", std::int64_t{1}}});
  loss = c.add("Neg", {c.reshape(loss, rows.shape)});
  ValueId weight =
      has(node, 2) ? weights_of(c, node, safe) : c.add("Expand", {filled(rows.dtype, 1)}, {{"shape", rows.shape}});
  if (has(node, 2)) loss = c.add("Mul", {loss, weight});
  if (counted != ValueId::none) {
    loss = c.add("Where", {counted, loss, filled(rows.dtype, 0)});
    weight = c.add("Where", {counted, weight, filled(rows.dtype, 0)});
  }
  Node first = node;
  first.outputs.resize(1);
  const std::string reduction = node.attributes.text("reduction", "mean");
  if (reduction == "none") return c.pass(first, loss);
  const Attributes to_scalar = {{"keepdims", std::int64_t{0}}};
  if (reduction == "sum") return c.become(first, "ReduceSum", {loss}, to_scalar);
  c.become(first, "Div", {c.add("ReduceSum", {loss}, to_scalar), c.add("ReduceSum", {weight}, to_scalar)});
}

bool cross_entropy_loss(Canonical &c, Node &node) {
  const ValueId scores = node.inputs.at(0);
  const Attributes over_classes = {{"axis", std::int64_t{1}}};
  if (c.rewriter().is_read(node, 1)) {
    Node log_probabilities = node;
    log_probabilities.outputs = {node.outputs[1]};
    c.become(log_probabilities, "LogSoftmax", {scores}, over_classes);
  }
  become_cross_entropy(c, node, scores, node.inputs.at(1));
  return true;
}

// Handles NegativeLogLikelihoodLoss. If the log probabilities come from a LogSoftmax, directly or through nodes that
// move elements, applies the same moves to the LogSoftmax's input, and emits the cross entropy of the result. Otherwise
// picks the log probability of each label.
bool negative_log_likelihood(Canonical &c, Node &node) {
  const ValueId given = node.inputs.at(0);
  require_classes(c, node, c.shape(given));
  const Trail trail = trail_to(c.rewriter().graph(), given, 1, [&c](ValueId id) { return c.rewriter().producer(id); });
  if (!trail.normalizes_axis || trail.maker->op != "LogSoftmax") {
    become_picked(c, node, given);
    return true;
  }
  ValueId scores = trail.maker->inputs.at(0);
  for (const Node &move : std::views::reverse(trail.moves)) scores = c.add(move.op, {scores}, move.attributes);
  become_cross_entropy(c, node, scores, node.inputs.at(1));
  return true;
}

}  // namespace

Rules loss_rules() {
  return {{"SoftmaxCrossEntropyLoss", cross_entropy_loss}, {"NegativeLogLikelihoodLoss", negative_log_likelihood}};
}

}  // namespace protrain::passes
