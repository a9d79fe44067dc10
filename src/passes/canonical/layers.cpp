// Rules for whole layers: normalizations over the last axes, attention, rotary embeddings.
#include <fmt/format.h>
#include <cmath>
#include <limits>

#include "passes/canonical/canonical.h"
#include "passes/pattern.h"

namespace protrain::passes {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Handles a scale or bias that differs from row to row: emits the plain normalization, then a multiplication and an
// addition.
bool normalization_by_rows(Canonical &c, const Node &node, std::int64_t axis) {
  const Shape shape = c.shape(node.inputs[0]);
  const Shape row(shape.begin() + axis, shape.end());
  const bool plain = c.shape(node.inputs.at(1)) == row && (!has(node, 2) || c.shape(node.inputs[2]) == row);
  if (plain) return false;
  const ValueId ones = c.rewriter().constant(graph::Array::filled({c.type(node.inputs[0]).dtype, row}, 1));
  const std::vector<ValueId> parts = c.add_all(node.op, {node.inputs[0], ones}, node.attributes, node.outputs.size());
  ValueId y = c.add("Mul", {parts[0], node.inputs[1]});
  if (has(node, 2)) y = c.add("Add", {y, node.inputs[2]});
  for (std::size_t i = 1; i < parts.size(); ++i) {
    if (!c.rewriter().is_read(node, i)) continue;
    Node statistic = node;
    statistic.outputs = {node.outputs[i]};
    c.pass(statistic, parts[i]);
  }
  c.pass(node, y);
  return true;
}

// Gives every normalization all its outputs, because gradients need the statistics.
bool normalization(Canonical &c, Node &node) {
  const std::size_t outputs = node.op == "LayerNormalization" ? 3 : 2;
  const std::size_t rank = c.shape(node.inputs.at(0)).size();
  const auto axis = static_cast<std::int64_t>(resolve_axis(node.attributes.integer("axis", -1), rank, node.name));
  if (normalization_by_rows(c, node, axis)) return true;
  const Attributes attributes = {{"axis", axis}, {"epsilon", node.attributes.real("epsilon", 1e-5)}};
  bool complete = node.outputs.size() == outputs && same(node.attributes, attributes);
  node.outputs.resize(outputs, ValueId::none);
  for (ValueId &out : node.outputs) {
    if (out != ValueId::none) continue;
    out = c.rewriter().new_value();
    complete = false;
  }
  if (complete) return false;
  c.become(node, node.op, node.inputs, attributes);
  return true;
}

// Brings (B, heads, S, D), or (B, S, heads * D) with a given number of heads, to (B, S, heads, D). Returns
// ValueId::none for other shapes.
ValueId sequence_first(Canonical &c, ValueId x, std::int64_t heads) {
  const Shape shape = c.shape(x);
  if (shape.size() == 4) return c.transpose(x, {0, 2, 1, 3});
  if (shape.size() != 3 || heads <= 0 || shape[2] % heads != 0) return ValueId::none;
  return c.reshape(x, {shape[0], shape[1], heads, shape[2] / heads});
}

// Replaces the node's first output by y (B, S, H, D), brought to the layout of the node's first input.
void become_like_input(Canonical &c, const Node &node, ValueId y) {
  const Shape shape = c.shape(y);  // (B, S, H, D)
  if (c.shape(node.inputs[0]).size() == 4)
    c.become(node, "Transpose", {y}, {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
  else
    c.become(node, "Reshape", {y}, {{"shape", Shape{shape[0], shape[1], shape[2] * shape[3]}}});
}

// Returns a mask (1, 1, queries, keys) that hides from each query the keys after it: 0 or -inf. The first `past` keys
// come before all queries.
ValueId causal_mask(Canonical &c, DType dtype, std::int64_t queries, std::int64_t keys, std::int64_t past) {
  const Type type = {dtype, {1, 1, queries, keys}};
  return c.constant(fmt::format("causal mask {}", past), type, [&] {
    std::vector<double> values(static_cast<std::size_t>(queries * keys));
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = i + past + 1; j < keys; ++j) values[static_cast<std::size_t>(i * keys + j)] = -kInfinity;
    return graph::Array::from_doubles(type, values).compact();
  });
}

// Turns a boolean into a term to add to scores: 0 where a key is visible, -inf where it is hidden.
ValueId as_bias(Canonical &c, ValueId visible, DType dtype) {
  return c.add("Where", {visible, c.scalar(dtype, 0), c.scalar(dtype, -kInfinity)});
}

// Turns a mask into a term to add to scores of shape `scores` (B, H, Sq, Sk). If the mask covers only the first keys,
// the term hides all other keys. Returns ValueId::none if the mask does not broadcast to `scores`.
ValueId additive_mask(Canonical &c, ValueId mask, DType dtype, const Shape &scores) {
  Shape shape = c.shape(mask);
  if (shape.size() > 4 || shape.empty()) return ValueId::none;
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  if (c.type(mask).dtype == DType::boolean) mask = as_bias(c, mask, dtype);
  mask = c.reshape(mask, shape);
  if (shape[3] > 1 && shape[3] < scores[3]) {
    mask =
        c.add("Pad", {mask},
              {{"pads", std::vector<std::int64_t>{0, 0, 0, 0, 0, 0, 0, scores[3] - shape[3]}}, {"value", -kInfinity}});
    shape[3] = scores[3];
  }
  for (std::size_t i = 0; i < 4; ++i)
    if (shape[i] != 1 && shape[i] != scores[i]) return ValueId::none;
  return mask;
}

// Returns a mask that hides the keys beyond each sample's length. If `causal`, the last query sees all keys within the
// length, and each earlier query sees one key fewer than the query after it.
ValueId length_mask(Canonical &c, ValueId lengths, bool causal, DType dtype, const Shape &scores) {
  const std::int64_t queries = causal ? scores[2] : 1, keys = scores[3];
  const Type type = {c.type(lengths).dtype, {1, 1, queries, keys}};
  const ValueId bound = c.constant(causal ? "causal lengths" : "lengths", type, [&] {
    std::vector<std::int64_t> least;  // by (i, j): the least length with which query i sees key j
    for (std::int64_t i = 0; i < queries; ++i)
      for (std::int64_t j = 0; j < keys; ++j) least.push_back(causal ? j - i + queries : j + 1);
    return graph::Array::from_integers(type, least);
  });
  lengths = c.reshape(lengths, {element_count(c.shape(lengths)), 1, 1, 1});
  return as_bias(c, c.add("LessOrEqual", {bound, lengths}), dtype);
}

struct AttentionInputs {
  ValueId q, k, v;               // (B, S, H, D)
  std::int64_t past = 0;         // number of keys of earlier tokens, which come first
  ValueId bias = ValueId::none;  // added to scores
  bool causal = false;           // the last query sees all keys, each earlier one a key fewer
  double scale = 1, softcap = 0;
};

// Returns the scores at the stage `mode` of ONNX's qk_matmul_output_mode: 0 for the products, 1 after the soft cap, 2
// after the mask, 3 for the probabilities.
ValueId visible_scores(Canonical &c, const AttentionInputs &h, std::int64_t mode) {
  const Shape q = c.shape(h.q), k = c.shape(h.k);
  const DType dtype = c.type(h.q).dtype;
  const Shape grouped = {q[0], k[2], q[2] / k[2], q[1], q[3]};
  const ValueId queries = c.reshape(c.transpose(h.q, {0, 2, 1, 3}), grouped);
  const ValueId keys = c.reshape(c.transpose(h.k, {0, 2, 1, 3}), {k[0], k[2], 1, k[1], k[3]});
  ValueId scores = c.add("MatMul", {queries, keys}, {{"trans_b", std::int64_t{1}}, {"alpha", h.scale}});
  scores = c.reshape(scores, {q[0], q[2], q[1], k[1]});
  if (mode >= 1 && h.softcap > 0) {
    const ValueId bounded = c.add("Tanh", {c.add("Mul", {scores, c.scalar(dtype, 1 / h.softcap)})});
    scores = c.add("Mul", {bounded, c.scalar(dtype, h.softcap)});
  }
  if (mode >= 2 && h.bias != ValueId::none) scores = c.add("Add", {scores, h.bias});
  if (mode < 3) return scores;
  // If a query sees no key, all its probabilities become 0.
  const Attributes over_keys = {{"axes", std::vector<std::int64_t>{3}}, {"keepdims", std::int64_t{1}}};
  const ValueId blind = c.add("Equal", {c.add("ReduceMax", {scores}, over_keys), c.scalar(dtype, -kInfinity)});
  const ValueId zero = c.scalar(dtype, 0);
  scores = c.add("Softmax", {c.add("Where", {blind, zero, scores})}, {{"axis", std::int64_t{-1}}});
  return c.add("Where", {blind, zero, scores});
}

// Sets h.q, h.k and h.v to the node's inputs in the layout (B, S, H, D). If the node has keys and values of earlier
// tokens, puts these in front of h.k and h.v. Returns false if an input is missing, or has a shape that cannot be
// brought to this layout.
bool split_heads(Canonical &c, const Node &node, AttentionInputs &h) {
  const auto &in = node.inputs;
  if (!has(node, 2) || has(node, 4) != has(node, 5)) return false;
  const std::int64_t kv_heads = node.attributes.integer("kv_num_heads", 0);
  h.q = sequence_first(c, in[0], node.attributes.integer("q_num_heads", 0));
  h.k = sequence_first(c, in[1], kv_heads);
  h.v = sequence_first(c, in[2], kv_heads);
  if (h.q == ValueId::none || h.k == ValueId::none || h.v == ValueId::none) return false;
  if (has(node, 4)) {
    h.past = c.shape(in[4]).at(2);
    h.k = c.add("Concat", {c.transpose(in[4], {0, 2, 1, 3}), h.k}, {{"axis", std::int64_t{1}}});
    h.v = c.add("Concat", {c.transpose(in[5], {0, 2, 1, 3}), h.v}, {{"axis", std::int64_t{1}}});
  }
  h.scale = node.attributes.real("scale", 1.0 / std::sqrt(static_cast<double>(c.shape(h.q)[3])));
  h.softcap = node.attributes.real("softcap", 0.0);
  return true;
}

// Sums all masks into h.bias. Returns false if the node's own mask does not broadcast to the scores.
//   If the node is causal, the sum includes a causal mask, or h.causal is set in place of this mask. h.causal is set if
// it hides the same keys as the mask, no node reads the scores, and the node's own mask is not trained.
bool collect_bias(Canonical &c, const Node &node, AttentionInputs &h, bool shows_scores) {
  const DType dtype = c.type(h.q).dtype;
  const Shape q = c.shape(h.q), scores = {q[0], q[2], q[1], c.shape(h.k)[1]};
  std::vector<ValueId> parts;
  if (has(node, 3)) parts.push_back(additive_mask(c, node.inputs[3], dtype, scores));
  if (!parts.empty() && parts[0] == ValueId::none) return false;
  const bool causal = node.attributes.integer("is_causal", 0) != 0;
  const bool learned = !parts.empty() && trained(c.rewriter(), parts[0]);
  if (has(node, 6))
    parts.push_back(length_mask(c, node.inputs[6], causal, dtype, scores));
  else if (causal && !shows_scores && !learned && h.past == scores[3] - scores[2])
    h.causal = true;
  else if (causal)
    parts.push_back(causal_mask(c, dtype, scores[2], scores[3], h.past));
  for (ValueId part : parts) h.bias = h.bias == ValueId::none ? part : c.add("Add", {h.bias, part});
  return true;
}

// Returns attention (B, Sq, H, Dv), computed by several operators. Unlike FusedAttention, these operators also give the
// bias a gradient.
ValueId unfused_attention(Canonical &c, const AttentionInputs &h) {
  const Shape q = c.shape(h.q), v = c.shape(h.v);
  const ValueId p = c.reshape(visible_scores(c, h, 3), {q[0], v[2], q[2] / v[2], q[1], v[1]});
  const ValueId values = c.reshape(c.transpose(h.v, {0, 2, 1, 3}), {v[0], v[2], 1, v[1], v[3]});
  const ValueId y = c.reshape(c.add("MatMul", {p, values}), {q[0], q[2], q[1], v[3]});
  return c.transpose(y, {0, 2, 1, 3});
}

bool attention(Canonical &c, Node &node) {
  AttentionInputs h;
  const bool shows_scores = c.rewriter().is_read(node, 3);
  if (!split_heads(c, node, h) || !collect_bias(c, node, h, shows_scores)) return false;
  const Attributes heads_first = {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}};
  if (c.rewriter().is_read(node, 1)) c.become(with_output(node, 1), "Transpose", {h.k}, heads_first);
  if (c.rewriter().is_read(node, 2)) c.become(with_output(node, 2), "Transpose", {h.v}, heads_first);
  if (shows_scores)
    c.pass(with_output(node, 3), visible_scores(c, h, node.attributes.integer("qk_matmul_output_mode", 0)));
  if (h.bias != ValueId::none && trained(c.rewriter(), h.bias)) {
    become_like_input(c, with_output(node, 0), unfused_attention(c, h));
    return true;
  }
  std::vector<ValueId> inputs = {h.q, h.k, h.v};
  if (h.bias != ValueId::none) inputs.push_back(h.bias);
  const Attributes attributes = {
      {"scale", h.scale}, {"causal", std::int64_t{h.causal}}, {"window", std::int64_t{0}}, {"softcap", h.softcap}};
  become_like_input(c, with_output(node, 0), c.add_all("FusedAttention", inputs, attributes, 2)[0]);
  return true;
}

bool rotary_embedding(Canonical &c, Node &node) {
  const ValueId x = sequence_first(c, node.inputs.at(0), node.attributes.integer("num_heads", 0));
  if (x == ValueId::none || node.inputs.size() < 3) return false;
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
