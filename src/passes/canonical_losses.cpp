// Rules for losses over classes: CrossEntropy over (M, C), class weights and reductions around it.
#include "passes/canonical.h"

namespace protrain::passes {

namespace {

constexpr ValueId kNone = ValueId::none;

bool is_read(Canonical &c, const Node &node, std::size_t output) {
  return output < node.outputs.size() && node.outputs[output] != kNone && c.rewriter().uses(node.outputs[output]) > 0;
}

// (N, C, d...) as (N * d..., C)
ValueId rows_of(Canonical &c, ValueId scores) {
  const Shape shape = c.shape(scores);
  if (shape.size() > 2) {
    std::vector<std::int64_t> perm = {0};
    for (std::size_t i = 2; i < shape.size(); ++i) perm.push_back(static_cast<std::int64_t>(i));
    perm.push_back(1);
    scores = c.transpose(scores, perm);
  }
  return c.reshape(scores, {element_count(shape) / shape.at(1), shape[1]});
}

Attributes per_row(const Node &node) {
  Attributes attributes = {{"reduction", std::string("none")}};
  if (node.attributes.has("ignore_index")) attributes.set("ignore_index", node.attributes.integer("ignore_index", 0));
  return attributes;
}

// Labels (M) that may be used as indices, and where one counts; none where all do.
struct Labels {
  ValueId classes = kNone, counted = kNone;
};
Labels labels_of(Canonical &c, const Node &node, ValueId labels) {
  if (!node.attributes.has("ignore_index")) return {labels, kNone};
  const DType dtype = c.type(labels).dtype;
  const auto ignored = static_cast<double>(node.attributes.integer("ignore_index", 0));
  const ValueId hidden = c.add("Equal", {labels, c.scalar(dtype, ignored)});
  return {c.add("Where", {hidden, c.scalar(dtype, 0), labels}), c.add("Not", {hidden})};
}

// The weight of each row: that of its class, 0 where its label is ignored; none where all weigh the same.
ValueId weights_of(Canonical &c, const Node &node, const Labels &labels, DType dtype) {
  ValueId weights = has(node, 2) ? c.add("Gather", {node.inputs[2], labels.classes}, {{"axis", std::int64_t{0}}}) : kNone;
  if (labels.counted == kNone) return weights;
  if (weights == kNone) return c.add("Cast", {labels.counted}, {{"to", std::string(name_of(dtype))}});
  return c.add("Where", {labels.counted, weights, c.scalar(dtype, 0)});
}

// The node's first output, of what each row loses (M) and weighs (M, or none).
void reduce_rows(Canonical &c, const Node &node, ValueId losses, ValueId weights, const Shape &label_shape) {
  const std::string reduction = node.attributes.text("reduction", "mean");
  const Attributes all = {{"keepdims", std::int64_t{0}}};
  Node first = node;
  first.outputs.resize(1);
  if (weights != kNone) losses = c.add("Mul", {losses, weights});
  if (reduction == "none")
    c.pass(first, c.reshape(losses, label_shape));
  else if (reduction == "sum")
    c.become(first, "ReduceSum", {losses}, all);
  else if (weights == kNone)
    c.become(first, "ReduceMean", {losses}, all);
  else
    c.become(first, "Div", {c.add("ReduceSum", {losses}, all), c.add("ReduceSum", {weights}, all)});
}

// The node's first output is the cross entropy of scores (N, C, d...) and labels (N, d...).
void become_cross_entropy(Canonical &c, const Node &node, ValueId scores) {
  const Shape label_shape = c.shape(node.inputs.at(1));
  const ValueId rows = rows_of(c, scores), labels = c.reshape(node.inputs[1], {element_count(label_shape)});
  const std::string reduction = node.attributes.text("reduction", "mean");
  if (has(node, 2) || (reduction == "none" && label_shape.size() != 1)) {
    const ValueId losses = c.add_all("CrossEntropy", {rows, labels}, per_row(node), 2)[0];
    const ValueId weights =
        has(node, 2) ? weights_of(c, node, labels_of(c, node, labels), c.type(losses).dtype) : kNone;
    return reduce_rows(c, node, losses, weights, label_shape);
  }
  Attributes attributes = per_row(node);
  attributes.set("reduction", reduction);
  Node both = node;
  both.outputs = {node.outputs.at(0), c.rewriter().new_value()};
  c.become(both, "CrossEntropy", {rows, labels}, attributes);
}

bool cross_entropy_loss(Canonical &c, Node &node) {
  const ValueId scores = node.inputs.at(0);
  if (is_read(c, node, 1)) {
    Node log_probabilities = node;
    log_probabilities.outputs = {node.outputs[1]};
    c.become(log_probabilities, "LogSoftmax", {scores}, {{"axis", std::int64_t{1}}});
  }
  become_cross_entropy(c, node, scores);
  return true;
}

// Of log probabilities that a LogSoftmax over the classes made: the cross entropy of what that was given.
bool negative_log_likelihood(Canonical &c, Node &node) {
  const ValueId x = node.inputs.at(0);
  const Node *made = c.rewriter().producer(x);
  const std::size_t rank = c.shape(x).size();
  if (made != nullptr && made->op == "LogSoftmax" &&
      resolve_axis(made->attributes.integer("axis", -1), rank, node.name) == 1) {
    become_cross_entropy(c, node, made->inputs.at(0));
    return true;
  }
  const Shape label_shape = c.shape(node.inputs.at(1));
  const std::int64_t count = element_count(label_shape);
  const Labels labels = labels_of(c, node, c.reshape(node.inputs[1], {count}));
  const ValueId picked = c.add("GatherElements", {rows_of(c, x), c.reshape(labels.classes, {count, 1})},
                               {{"axis", std::int64_t{1}}});
  const ValueId losses = c.add("Neg", {c.reshape(picked, {count})});
  reduce_rows(c, node, losses, weights_of(c, node, labels, c.type(losses).dtype), label_shape);
  return true;
}

}  // namespace

Rules loss_rules() {
  return {{"SoftmaxCrossEntropyLoss", cross_entropy_loss}, {"NegativeLogLikelihoodLoss", negative_log_likelihood}};
}

}  // namespace protrain::passes
