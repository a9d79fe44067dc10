// Rules for whole layers: normalizations, attention, rotary embeddings, losses.
#include <cmath>
#include <limits>

#include "passes/canonical.h"

namespace protrain::passes {

namespace {

constexpr ValueId kNone = ValueId::none;

bool is_read(Canonical &c, const Node &node, std::size_t output) {
  return output < node.outputs.size() && node.outputs[output] != kNone && c.rewriter().uses(node.outputs[output]) > 0;
}

// Every normalization gives all its outputs: gradients need the statistics.
bool normalization(Canonical &c, Node &node) {
  const std::size_t outputs = node.op == "LayerNormalization" ? 3 : 2;
  const std::size_t rank = c.shape(node.inputs.at(0)).size();
  const auto axis = static_cast<std::int64_t>(resolve_axis(node.attributes.integer("axis", -1), rank, node.name));
  const Attributes attributes = {{"axis", axis}, {"epsilon", node.attributes.real("epsilon", 1e-5)}};
  bool complete = node.outputs.size() == outputs && same(node.attributes, attributes);
  node.outputs.resize(outputs, kNone);
  for (ValueId &out : node.outputs) {
    if (out != kNone) continue;
    out = c.rewriter().new_value();
    complete = false;
  }
  if (complete) return false;
  c.become(node, node.op, node.inputs, attributes);
  return true;
}

// (B, heads, S, D), or (B, S, heads * D) where the node names the number of heads, as (B, S, heads, D); none: neither.
ValueId sequence_first(Canonical &c, ValueId x, std::int64_t heads) {
  const Shape shape = c.shape(x);
  if (shape.size() == 4) return c.transpose(x, {0, 2, 1, 3});
  if (shape.size() != 3 || heads <= 0 || shape[2] % heads != 0) return kNone;
  return c.reshape(x, {shape[0], shape[1], heads, shape[2] / heads});
}

// Back to the layout of the input; the node's first output.
void become_like_input(Canonical &c, const Node &node, ValueId y) {
  const Shape shape = c.shape(y);  // (B, S, H, D)
  if (c.shape(node.inputs[0]).size() == 4)
    c.become(node, "Transpose", {y}, {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
  else
    c.become(node, "Reshape", {y}, {{"shape", Shape{shape[0], shape[1], shape[2] * shape[3]}}});
}

// 0 where query i may see key j <= i, counted from the first of each; -inf elsewhere. (queries, keys)
graph::Array upper_left_causal(DType dtype, std::int64_t queries, std::int64_t keys) {
  std::vector<double> values(static_cast<std::size_t>(
      checked_multiply(static_cast<std::uint64_t>(queries), static_cast<std::uint64_t>(keys))));
  for (std::int64_t i = 0; i < queries; ++i)
    for (std::int64_t j = i + 1; j < keys; ++j)
      values[static_cast<std::size_t>(i * keys + j)] = -std::numeric_limits<double>::infinity();
  return graph::Array::from_doubles({dtype, {1, 1, queries, keys}}, values);
}

// A mask as what is added to scores of shape `scores` (B, H, Sq, Sk); none where it does not fit.
ValueId additive_mask(Canonical &c, ValueId mask, DType dtype, const Shape &scores) {
  Shape shape = c.shape(mask);
  if (shape.size() > 4) return kNone;
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  for (std::size_t i = 0; i < 4; ++i)
    if (shape[i] != 1 && shape[i] != scores[i]) return kNone;
  if (c.type(mask).dtype == DType::boolean)
    mask = c.add("Where", {mask, c.scalar(dtype, 0), c.scalar(dtype, -std::numeric_limits<double>::infinity())});
  return c.reshape(mask, shape);
}

bool attention(Canonical &c, Node &node) {
  const auto &in = node.inputs;
  if (!has(node, 2) || has(node, 4) || has(node, 5) || has(node, 6)) return false;  // a cache of past keys
  if (is_read(c, node, 1) || is_read(c, node, 2) || is_read(c, node, 3)) return false;
  const std::int64_t q_heads = node.attributes.integer("q_num_heads", 0);
  const std::int64_t kv_heads = node.attributes.integer("kv_num_heads", 0);
  const ValueId q = sequence_first(c, in[0], q_heads), k = sequence_first(c, in[1], kv_heads);
  const ValueId v = sequence_first(c, in[2], kv_heads);
  if (q == kNone || k == kNone || v == kNone) return false;
  const DType dtype = c.type(q).dtype;
  const Shape scores = {c.shape(q)[0], c.shape(q)[2], c.shape(q)[1], c.shape(k)[1]};

  ValueId bias = has(node, 3) ? additive_mask(c, in[3], dtype, scores) : kNone;
  if (has(node, 3) && bias == kNone) return false;
  bool causal = node.attributes.integer("is_causal", 0) != 0;
  if (causal && scores[2] != scores[3]) {  // FusedAttention aligns the last query with the last key
    const ValueId mask = c.rewriter().constant(upper_left_causal(dtype, scores[2], scores[3]));
    bias = bias == kNone ? mask : c.add("Add", {bias, mask});
    causal = false;
  }
  const double head_size = static_cast<double>(c.shape(q)[3]);
  Attributes attributes = {{"scale", node.attributes.real("scale", 1.0 / std::sqrt(head_size))},
                           {"causal", std::int64_t{causal}},
                           {"window", std::int64_t{0}},
                           {"softcap", node.attributes.real("softcap", 0.0)}};
  std::vector<ValueId> inputs = {q, k, v};
  if (bias != kNone) inputs.push_back(bias);
  become_like_input(c, node, c.add_all("FusedAttention", inputs, attributes, 2)[0]);
  return true;
}

bool rotary_embedding(Canonical &c, Node &node) {
  const ValueId x = sequence_first(c, node.inputs.at(0), node.attributes.integer("num_heads", 0));
  if (x == kNone || node.inputs.size() < 3) return false;
  ValueId cos = node.inputs[1], sin = node.inputs[2];
  if (has(node, 3)) {
    cos = c.add("Gather", {cos, node.inputs[3]}, {{"axis", std::int64_t{0}}});
    sin = c.add("Gather", {sin, node.inputs[3]}, {{"axis", std::int64_t{0}}});
  }
  const std::int64_t named = node.attributes.integer("rotary_embedding_dim", 0);
  const ValueId y = c.add("Rotary", {x, cos, sin},
                          {{"interleaved", node.attributes.integer("interleaved", 0)},
                           {"rotary_dim", named > 0 ? named : c.shape(x)[3]},
                           {"inverse", std::int64_t{0}}});
  become_like_input(c, node, y);
  return true;
}

// CrossEntropy over (M, C) of scores (N, C, d...) and labels (N, d...); the node's first output.
void become_cross_entropy(Canonical &c, const Node &node, ValueId scores, ValueId labels) {
  const Shape shape = c.shape(scores);
  if (shape.size() > 2) {
    std::vector<std::int64_t> perm = {0};
    for (std::size_t i = 2; i < shape.size(); ++i) perm.push_back(static_cast<std::int64_t>(i));
    perm.push_back(1);
    scores = c.transpose(scores, perm);
  }
  const Shape label_shape = c.shape(labels);
  const std::int64_t rows = element_count(label_shape);
  scores = c.reshape(scores, {rows, shape.at(1)});
  labels = c.reshape(labels, {rows});
  Attributes attributes = {{"reduction", node.attributes.text("reduction", "mean")}};
  if (node.attributes.has("ignore_index")) attributes.set("ignore_index", node.attributes.integer("ignore_index", 0));
  if (node.attributes.text("reduction", "mean") == "none" && label_shape.size() != 1) {
    const ValueId loss = c.add_all("CrossEntropy", {scores, labels}, attributes, 2)[0];
    Node first = node;
    first.outputs.resize(1);
    c.become(first, "Reshape", {loss}, {{"shape", label_shape}});
    return;
  }
  Node both = node;
  both.outputs = {node.outputs.at(0), c.rewriter().new_value()};
  c.become(both, "CrossEntropy", {scores, labels}, attributes);
}

bool cross_entropy_loss(Canonical &c, Node &node) {
  if (has(node, 2)) return false;  // weights of the classes
  const ValueId scores = node.inputs.at(0);
  if (is_read(c, node, 1)) {
    Node log_probabilities = node;
    log_probabilities.outputs = {node.outputs[1]};
    c.become(log_probabilities, "LogSoftmax", {scores}, {{"axis", std::int64_t{1}}});
  }
  become_cross_entropy(c, node, scores, node.inputs.at(1));
  return true;
}

// Of log probabilities that a LogSoftmax made: the cross entropy of what that was given.
bool negative_log_likelihood(Canonical &c, Node &node) {
  const Node *made = c.rewriter().producer(node.inputs.at(0));
  if (has(node, 2) || made == nullptr || made->op != "LogSoftmax") return false;
  const std::size_t rank = c.shape(node.inputs[0]).size();
  if (resolve_axis(made->attributes.integer("axis", -1), rank, node.name) != 1) return false;
  become_cross_entropy(c, node, made->inputs.at(0), node.inputs.at(1));
  return true;
}

}  // namespace

Rules layer_rules() {
  return {{"LayerNormalization", normalization},
          {"RMSNormalization", normalization},
          {"Attention", attention},
          {"RotaryEmbedding", rotary_embedding},
          {"SoftmaxCrossEntropyLoss", cross_entropy_loss},
          {"NegativeLogLikelihoodLoss", negative_log_likelihood}};
}

}  // namespace protrain::passes
