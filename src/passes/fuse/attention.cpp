// Fuses attention that is written as several operators: softmax(scale * q k^T + masks) v over (B, H, S, D), or over
// (B * H, S, D) from some exporters. Follows the pattern backwards from the product with v to q, k and the masks.
#include <algorithm>
#include <cmath>

#include "passes/fuse/fuse.h"

namespace protrain::passes {

namespace {

struct Addend {
  // Without `hidden`, the mask is added to the scores. With `hidden`, the mask is boolean, and each score where the
  // mask is false is replaced by the number `hidden`.
  ValueId mask = ValueId::none;
  std::optional<double> hidden;
};

// Describes the nodes between the product q k^T and the product with v.
struct Scores {
  const Node *product = nullptr;  // q k^T
  std::vector<Addend> addends;
  double scale = 1, softcap = 0;
  bool scaled = false;
  bool guarded = false;  // NaN probabilities become 0
  Shape lead;            // (B, H), if some step has four axes
};

bool keeps_matrices(const Rewriter &r, const Node &reshape) {
  const Shape before = r.shape(reshape.inputs[0]), after = r.shape(reshape.outputs[0]);
  return before.size() >= 2 && after.size() >= 2 &&
         std::equal(before.end() - 2, before.end(), after.end() - 2, after.end());
}

// Follows Reshapes of leading axes backwards from `id` and returns the value before them. If a value on this way has
// four axes, stores the first two of them, (B, H), in scores.lead.
ValueId under_reshapes(const Rewriter &r, ValueId id, Scores &scores) {
  while (true) {
    const Shape shape = r.shape(id);
    if (shape.size() == 4) scores.lead = {shape[0], shape[1]};
    const Node *reshape = made_for_one(r, id, "Reshape");
    if (reshape == nullptr || !keeps_matrices(r, *reshape)) return id;
    id = reshape->inputs[0];
  }
}

// Returns the Softmax that makes the probabilities `id`. They may be guarded against NaN: Where(IsNaN(p), 0, p).
const Node *softmax_behind(const Rewriter &r, ValueId id, Scores &scores) {
  id = under_reshapes(r, id, scores);
  int readers = 1;
  if (const Node *where = made_for_one(r, id, "Where")) {
    const Node *nan = made_for_one(r, where->inputs[0], "IsNaN");
    if (nan == nullptr || nan->inputs[0] != where->inputs[2] || uniform(r, where->inputs[1]) != 0.0) return nullptr;
    scores.guarded = true;
    id = where->inputs[2];
    readers = 2;
  }
  const Node *softmax = made_by(r, id, "Softmax");
  return softmax != nullptr && r.uses(id) == readers && is_last_axis(r, *softmax) ? softmax : nullptr;
}

// A value times a number, from a Mul or a Div.
struct ScaledValue {
  ValueId value = ValueId::none;
  double factor = 1;
};
std::optional<ScaledValue> scaled(const Rewriter &r, const Node &node) {
  const Shape shape = r.shape(node.outputs[0]);
  if (node.op != "Mul" && node.op != "Div") return std::nullopt;
  for (std::size_t i = 0; i < (node.op == "Mul" ? 2 : 1); ++i) {
    const auto number = uniform(r, node.inputs[1 - i]);
    if (number && r.shape(node.inputs[i]) == shape)
      return ScaledValue{node.inputs[i], node.op == "Mul" ? *number : 1 / *number};
  }
  return std::nullopt;
}

// If `node` is an Add or Where that masks scores, or a Max that bounds scores from below, returns the operand that
// holds the scores. Otherwise returns ValueId::none. Appends the mask of an Add or Where to scores.addends.
ValueId under_mask(const Rewriter &r, const Node &node, Scores &scores) {
  const auto covers = [&](ValueId id) { return r.shape(id) == r.shape(node.outputs[0]); };
  if (node.op == "Where") {
    const auto hidden = uniform(r, node.inputs[2]);
    if (!hidden || *hidden > kHidden || !covers(node.inputs[1])) return ValueId::none;
    scores.addends.push_back({node.inputs[0], hidden});
    return node.inputs[1];
  }
  for (std::size_t i : {r.constant_of(node.inputs[0]) == nullptr ? 0 : 1, 1, 0}) {
    const ValueId other = node.inputs[1 - i];
    if (node.op == "Max") {  // exporters do this to keep sums of masks from reaching -inf
      const auto floor = uniform(r, other);
      if (floor && *floor <= kHidden) return node.inputs[i];
      continue;
    }
    if (!covers(node.inputs[i]) || trained(r, other)) continue;
    scores.addends.push_back({other, std::nullopt});
    return node.inputs[i];
  }
  return ValueId::none;
}

// Returns x and c if `outer` is Mul(Tanh(x / c), c).
std::optional<ScaledValue> softcapped(const Rewriter &r, const ScaledValue &outer) {
  const Node *tanh = made_for_one(r, outer.value, "Tanh");
  const Node *inner = tanh == nullptr || r.uses(tanh->inputs[0]) != 1 ? nullptr : r.producer(tanh->inputs[0]);
  const auto divided = inner == nullptr ? std::nullopt : scaled(r, *inner);
  if (!divided || !near(divided->factor * outer.factor, 1)) return std::nullopt;
  return ScaledValue{divided->value, outer.factor};
}

// Follows the scores from the softmax to the product q k^T: masks first, then a soft cap, then scales.
bool follow_scores(const Rewriter &r, ValueId id, Scores &scores) {
  for (int steps = 0; steps < 16; ++steps) {
    id = under_reshapes(r, id, scores);
    const Node *node = r.uses(id) == 1 ? r.producer(id) : nullptr;
    if (node == nullptr) return false;
    if (node->op == "MatMul") {
      scores.product = node;
      return true;
    }
    if (const auto number = scaled(r, *node)) {
      const auto cap = scores.scaled ? std::nullopt : softcapped(r, *number);
      if (cap) scores.softcap = cap->factor;
      if (!cap) scores.scale *= number->factor;
      scores.scaled = true;
      id = cap ? cap->value : number->value;
      continue;
    }
    if (scores.scaled || (node->op != "Add" && node->op != "Where" && node->op != "Max")) return false;
    id = under_mask(r, *node, scores);
    if (id == ValueId::none) return false;
  }
  return false;
}

// Returns q or k without the constants that it is multiplied by, and multiplies `scale` by them.
ValueId unscaled(Rewriter &r, ValueId id, double &scale, int depth = 0) {
  const Node *node = r.uses(id) == 1 ? r.producer(id) : nullptr;
  if (node == nullptr || depth > 6) return id;
  if (const auto number = scaled(r, *node)) {
    scale *= number->factor;
    return unscaled(r, number->value, scale, depth + 1);
  }
  if (node->op != "Reshape" && node->op != "Transpose" && node->op != "Expand") return id;
  const ValueId under = unscaled(r, node->inputs[0], scale, depth + 1);
  return under == node->inputs[0] ? id : r.emit(node->op, {under}, node->attributes);
}

// Returns false if fusing could change the result of a query that sees no key. For such a query FusedAttention gives 0.
// The nodes before fusing give an average over all keys if hidden scores are finite. If hidden scores are infinite,
// these nodes give 0 with Scores::guarded and NaN without. Only constant masks are checked. If there are several, the
// function assumes that together they hide all keys of some query, even if no single mask does.
bool masks_are_safe(Fusion &fusion, const Scores &scores) {
  int hiding = 0;
  bool differs = !scores.guarded;  // for a query without a key
  bool empty_row = false;
  for (const Addend &addend : scores.addends) {
    if (fusion.r.constant_of(addend.mask) == nullptr) continue;
    const Mask &mask = mask_of(fusion, addend.mask);
    if (!mask.masks) continue;
    ++hiding;
    differs |= addend.hidden ? std::isfinite(*addend.hidden) : mask.finite;
    empty_row |= mask.empty_row;
  }
  return !differs || (hiding <= 1 && !empty_row);
}

ValueId reshaped(Rewriter &r, ValueId id, const Shape &shape) {
  return r.shape(id) == shape ? id : r.emit("Reshape", {id}, {{"shape", shape}});
}

// Returns the shape of an addend as four axes. Each axis has size 1 or the size that it has in `full` (B, H, Sq, Sk).
// Returns {} if the addend cannot have such a shape.
Shape bias_shape(const Rewriter &r, const Addend &addend, const Shape &full) {
  Shape shape = r.shape(addend.mask);
  if (shape.size() == 3 && shape[0] == full[0] * full[1])
    shape = {full[0], full[1], shape[1], shape[2]};
  else if (shape.size() <= 4)
    shape.insert(shape.begin(), 4 - shape.size(), 1);
  if (shape.size() != 4) return {};
  for (std::size_t i = 0; i < 4; ++i)
    if (shape[i] != 1 && shape[i] != full[i]) return {};
  return shape;
}

bool addends_fit(const Rewriter &r, const Scores &scores, const Shape &full) {
  const DType dtype = r.type(scores.product->outputs[0]).dtype;
  return std::ranges::all_of(scores.addends, [&](const Addend &addend) {
    return !bias_shape(r, addend, full).empty() && (addend.hidden || r.type(addend.mask).dtype == dtype);
  });
}

// Returns the sum of all addends, or ValueId::none without addends.
ValueId summed(Rewriter &r, const Scores &scores, const Shape &full, DType dtype) {
  ValueId sum = ValueId::none;
  for (const Addend &addend : scores.addends) {
    ValueId mask = addend.mask;
    if (addend.hidden) {
      const ValueId zero = r.constant(graph::Array::scalar(dtype, 0));
      const ValueId hidden = r.constant(graph::Array::scalar(dtype, *addend.hidden));
      mask = r.emit("Where", {mask, zero, hidden});
    }
    mask = reshaped(r, mask, bias_shape(r, addend, full));
    sum = sum == ValueId::none ? mask : r.emit("Add", {sum, mask});
  }
  return sum;
}

// The batch size, the number of query heads (`q`), and the number of heads of the keys and values (`kv`). heads_of()
// returns an empty optional if the shapes of q, k and v do not match.
struct Heads {
  std::int64_t batch = 0, q = 0, kv = 0;
};
std::optional<Heads> heads_of(const Rewriter &r, const Scores &scores, ValueId value) {
  const Shape q = r.shape(scores.product->inputs[0]), k = r.shape(scores.product->inputs[1]), v = r.shape(value);
  if (q.size() != k.size() || q.size() != v.size()) return std::nullopt;
  if (q.size() == 4) {
    const bool fit = q[0] == k[0] && k[0] == v[0] && k[1] == v[1] && k[1] > 0 && q[1] % k[1] == 0;
    return fit && (k[1] == q[1] || k[1] == 1) ? std::optional(Heads{q[0], q[1], k[1]}) : std::nullopt;
  }
  if (q.size() != 3 || q[0] != k[0] || q[0] != v[0]) return std::nullopt;
  if (scores.lead.empty()) return Heads{q[0], 1, 1};
  return scores.lead[0] * scores.lead[1] == q[0] ? std::optional(Heads{scores.lead[0], scores.lead[1], scores.lead[1]})
                                                 : std::nullopt;
}

bool plain_product(const Node &matmul) {
  return matmul.inputs.size() == 2 && matmul.attributes.integer("trans_a", 0) == 0;
}

}  // namespace

bool fuse_attention(Fusion &fusion, const Node &matmul) {
  Rewriter &r = fusion.r;
  Scores scores;
  if (!plain_product(matmul) || !matmul.attributes.items().empty()) return false;
  const Node *softmax = softmax_behind(r, matmul.inputs[0], scores);
  if (softmax == nullptr || !follow_scores(r, softmax->inputs[0], scores) || !plain_product(*scores.product))
    return false;
  const auto heads = heads_of(r, scores, matmul.inputs[1]);
  if (!heads || !masks_are_safe(fusion, scores)) return false;
  const Shape p = r.shape(scores.product->outputs[0]);
  const std::int64_t queries = p[p.size() - 2], keys = p.back();
  const Shape full = {heads->batch, heads->q, queries, keys};
  if (!addends_fit(r, scores, full)) return false;

  const Node product = *scores.product;
  const Shape v_shape = r.shape(matmul.inputs[1]), result = r.shape(matmul.outputs[0]);
  const std::int64_t width = r.shape(product.inputs[0]).back();
  const ValueId bias = summed(r, scores, full, r.type(product.outputs[0]).dtype);
  double scale = scores.scale * product.attributes.real("alpha", 1.0);
  ValueId q = unscaled(r, product.inputs[0], scale), k = unscaled(r, product.inputs[1], scale);
  const bool k_rows = product.attributes.integer("trans_b", 0) != 0;  // (.., Sk, D) rather than (.., D, Sk)
  const Shape k_shape =
      k_rows ? Shape{heads->batch, heads->kv, keys, width} : Shape{heads->batch, heads->kv, width, keys};
  const std::vector<std::int64_t> k_perm = k_rows ? kSwapHeads : std::vector<std::int64_t>{0, 3, 1, 2};
  q = r.emit("Transpose", {reshaped(r, q, {heads->batch, heads->q, queries, width})}, {{"perm", kSwapHeads}});
  k = r.emit("Transpose", {reshaped(r, k, k_shape)}, {{"perm", k_perm}});
  const ValueId v =
      r.emit("Transpose", {reshaped(r, matmul.inputs[1], {heads->batch, heads->kv, keys, v_shape.back()})},
             {{"perm", kSwapHeads}});
  std::vector<ValueId> inputs = {q, k, v};
  if (bias != ValueId::none) inputs.push_back(bias);
  const ValueId out = r.emit_all(
      "FusedAttention", inputs,
      {{"scale", scale}, {"causal", std::int64_t{0}}, {"window", std::int64_t{0}}, {"softcap", scores.softcap}},
      2)[0];  // (B, Sq, H, Dv)
  if (result.size() == 4)
    r.become(matmul, "Transpose", {out}, {{"perm", kSwapHeads}});
  else
    r.become(matmul, "Reshape", {r.emit("Transpose", {out}, {{"perm", kSwapHeads}})}, {{"shape", result}});
  return true;
}

// Moves constant factors of queries and keys into the attribute `scale`.
bool fuse_scaled_operands(Fusion &fusion, const Node &attention) {
  Rewriter &r = fusion.r;
  double scale = attention.attributes.real("scale", 1.0);
  std::vector<ValueId> inputs = attention.inputs;
  for (std::size_t i = 0; i < 2; ++i) inputs[i] = unscaled(r, inputs[i], scale);
  if (inputs == attention.inputs) return false;
  Attributes attributes = attention.attributes;
  attributes.set("scale", scale);
  r.become(attention, "FusedAttention", inputs, attributes);
  return true;
}

// Undoes the repetition of keys and values for groups of query heads: (B, S, Hk, 1, D) -> (B, S, Hk, G, D) ->
// (B, S, H, D), where H = Hk G.
bool fuse_grouped_heads(Fusion &fusion, const Node &attention) {
  Rewriter &r = fusion.r;
  std::vector<ValueId> inputs = attention.inputs;
  Shape grouped[2];
  for (std::size_t i = 1; i <= 2; ++i) {
    const Node *reshape = made_by(r, inputs[i], "Reshape");
    const Node *expand = reshape == nullptr ? nullptr : made_by(r, reshape->inputs[0], "Expand");
    if (expand == nullptr) return false;
    const Shape full = r.shape(inputs[i]), from = r.shape(expand->inputs[0]), to = r.shape(expand->outputs[0]);
    const bool repeats = from.size() == 5 && to.size() == 5 && from[3] == 1 && to[3] > 1 && from[0] == to[0] &&
                         from[1] == to[1] && from[2] == to[2] && from[4] == to[4] && to[2] * to[3] == full[2] &&
                         to[0] == full[0] && to[1] == full[1] && to[4] == full[3];
    if (!repeats) return false;
    grouped[i - 1] = {from[0], from[1], from[2], from[4]};
    inputs[i] = expand->inputs[0];
  }
  if (grouped[0][2] != grouped[1][2]) return false;
  for (std::size_t i = 1; i <= 2; ++i) inputs[i] = r.emit("Reshape", {inputs[i]}, {{"shape", grouped[i - 1]}});
  r.become(attention, "FusedAttention", inputs, attention.attributes);
  return true;
}

}  // namespace protrain::passes
