// Rules for whole layers: normalizations, attention, rotary embeddings.
#include <cmath>
#include <limits>

#include "passes/canonical.h"
#include "passes/pattern.h"

namespace protrain::passes {

namespace {

constexpr ValueId kNone = ValueId::none;

bool is_read(Canonical &c, const Node &node, std::size_t output) {
  return output < node.outputs.size() && node.outputs[output] != kNone && c.rewriter().uses(node.outputs[output]) > 0;
}

// A scale or bias that differs from row to row: the plain normalization first, then what it is multiplied by and what
// is added.
bool normalization_by_rows(Canonical &c, const Node &node, std::int64_t axis) {
  const Shape shape = c.shape(node.inputs[0]);
  const Shape row(shape.begin() + axis, shape.end());
  const bool plain = c.shape(node.inputs.at(1)) == row && (!has(node, 2) || c.shape(node.inputs[2]) == row);
  if (plain) return false;
  const DType dtype = c.type(node.inputs[0]).dtype;
  const ValueId ones = c.rewriter().constant(graph::Array::filled({dtype, row}, 1));
  std::vector<ValueId> parts = c.add_all(node.op, {node.inputs[0], ones}, node.attributes, node.outputs.size());
  ValueId y = c.add("Mul", {parts[0], node.inputs[1]});
  if (has(node, 2)) y = c.add("Add", {y, node.inputs[2]});
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (!is_read(c, node, i)) continue;
    Node statistic = node;
    statistic.outputs = {node.outputs[i]};
    c.pass(statistic, parts[i]);
  }
  c.pass(node, y);
  return true;
}

// Every normalization gives all its outputs: gradients need the statistics.
bool normalization(Canonical &c, Node &node) {
  const std::size_t outputs = node.op == "LayerNormalization" ? 3 : 2;
  const std::size_t rank = c.shape(node.inputs.at(0)).size();
  const auto axis = static_cast<std::int64_t>(resolve_axis(node.attributes.integer("axis", -1), rank, node.name));
  if (normalization_by_rows(c, node, axis)) return true;
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

// Keys or values (B, S, Hk, D) as (B, heads, S, D), each repeated for its group of query heads.
ValueId for_each_head(Canonical &c, ValueId x, std::int64_t heads) {
  const Shape shape = c.shape(x);
  const std::int64_t groups = heads / shape[2];
  if (groups != 1) {
    const ValueId apart = c.reshape(x, {shape[0], shape[1], shape[2], 1, shape[3]});
    const ValueId repeated = c.add("Expand", {apart}, {{"shape", Shape{shape[0], shape[1], shape[2], groups, shape[3]}}});
    x = c.reshape(repeated, {shape[0], shape[1], heads, shape[3]});
  }
  return c.transpose(x, {0, 2, 1, 3});
}

// softmax(scale q k^T + bias) v in pieces, as (B, Sq, H, D): what is trained in the bias has its gradient that way.
ValueId attention_in_pieces(Canonical &c, const std::vector<ValueId> &in, double scale) {
  const ValueId q = c.transpose(in[0], {0, 2, 1, 3}), k = for_each_head(c, in[1], c.shape(in[0])[2]);
  const ValueId v = for_each_head(c, in[2], c.shape(in[0])[2]);
  const ValueId product = c.add("MatMul", {q, c.transpose(k, {0, 1, 3, 2})});
  const ValueId scaled = c.add("Mul", {product, c.scalar(c.type(product).dtype, scale)});
  const ValueId weights = c.add("Softmax", {c.add("Add", {scaled, in[3]})}, {{"axis", std::int64_t{-1}}});
  return c.transpose(c.add("MatMul", {weights, v}), {0, 2, 1, 3});
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
  const double scale = node.attributes.real("scale", 1.0 / std::sqrt(head_size));
  if (bias != kNone && !causal && node.attributes.real("softcap", 0.0) == 0 && trained(c.rewriter(), bias)) {
    become_like_input(c, node, attention_in_pieces(c, {q, k, v, bias}, scale));
    return true;
  }
  Attributes attributes = {{"scale", scale},
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

}  // namespace

Rules layer_rules() {
  return {{"LayerNormalization", normalization},
          {"RMSNormalization", normalization},
          {"Attention", attention},
          {"RotaryEmbedding", rotary_embedding}};
}

}  // namespace protrain::passes
