// Attention as one operator, so that no (S, S) matrix ever has to exist.
#include <algorithm>
#include <cmath>

#include "arith/attention.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

// The lengths B, Sq, Sk, H, Hk, D, Dv (in this order) of q (B, Sq, H, D), k (B, Sk, Hk, D) and v (B, Sk, Hk, Dv).
struct Sizes {
  std::int64_t batch, queries, keys, heads, kv_heads, width, value_width;
};

Sizes sizes_of(const Shape &q, const Shape &k, const Shape &v) {
  return {.batch = q[0],
          .queries = q[1],
          .keys = k[1],
          .heads = q[2],
          .kv_heads = k[2],
          .width = q[3],
          .value_width = v[3]};
}

void require_attention_operands(const NodeTypes &types) {
  const Type &q = types.input(0), &k = types.input(1), &v = types.input(2);
  const bool ranks = q.shape.size() == 4 && k.shape.size() == 4 && v.shape.size() == 4;
  const bool fits = ranks && q.dtype == k.dtype && q.dtype == v.dtype && is_float(q.dtype) &&
                    k.shape[0] == q.shape[0] && v.shape[0] == q.shape[0] && k.shape[1] == v.shape[1] &&
                    k.shape[2] == v.shape[2] && k.shape[2] > 0 && q.shape[2] % k.shape[2] == 0 &&
                    q.shape[3] == k.shape[3];
  require(fits, Code::shape, types.subject(),
          "q {}, k {}, v {} do not fit (B, Sq, H, D), (B, Sk, Hk, D), (B, Sk, Hk, Dv)", to_text(q), to_text(k),
          to_text(v));
}

void require_bias(const NodeTypes &types, const Type &bias) {
  const Shape &q = types.input(0).shape;
  const Shape full = {q[0], q[2], q[1], types.input(1).shape[1]};
  require(bias.shape.size() == 4 && broadcast(bias.shape, full, types.subject()) == full, Code::shape, types.subject(),
          "a bias of {} does not stretch to (B, H, Sq, Sk) = {}", to_text(bias), to_text(full));
}

// Checks the input (B, S) of first keys, which a node has if documents are packed. For each query, this input gives the
// position where the query's document begins, and the query sees no earlier key. If a node has this input, its bias
// counts positions from the beginning of the document, not of the whole sequence.
void require_first_keys(const NodeTypes &types, const Type &first) {
  const Shape &q = types.input(0).shape;
  const bool fits = first.dtype == DType::i64 && first.shape == Shape{q[0], q[1]} && types.input(1).shape[1] == q[1] &&
                    types.node.attributes.integer("causal", 0) != 0;
  require(fits, Code::shape, types.subject(), "first keys {} do not fit causal attention, q {}", to_text(first),
          to_text(types.input(0)));
}

std::vector<Type> infer_attention(const NodeTypes &types) {
  require_attention_operands(types);
  if (types.has(3)) require_bias(types, types.input(3));
  if (types.has(4)) require_first_keys(types, types.input(4));
  const Type &q = types.input(0);
  const Shape &v = types.input(2).shape;
  return {{q.dtype, {q.shape[0], q.shape[1], q.shape[2], v[3]}},
          {sum_dtype(q.dtype), {q.shape[0], q.shape[2], q.shape[1]}}};
}

// FusedAttentionGrad(dout, q, k, v, out, lse[, bias][, first keys]) -> dq, dk, dv. lse is log(sum of exp(score)) of
// each query row.
std::vector<Type> infer_attention_gradient(const NodeTypes &types) {
  return {types.input(1), types.input(2), types.input(3)};
}

// Computes scores of queries and keys. The score of a masked key is -infinity.
class Scores {
 public:
  Scores(const Node &node, const Sizes &sizes, const Array *bias, const Array *first)
      : scale(node.attributes.real("scale", 1 / std::sqrt(static_cast<double>(sizes.width)))),
        softcap(node.attributes.real("softcap", 0)),
        sizes_(sizes),
        causal_(node.attributes.integer("causal", 0) != 0),
        window_(node.attributes.integer("window", 0)) {
    if (bias != nullptr) bias_ = bias->expanded({sizes.batch, sizes.heads, sizes.queries, sizes.keys}).doubles();
    if (first == nullptr) return;
    for (std::int64_t given : first->integers()) {
      const auto query = static_cast<std::int64_t>(first_.size()) % sizes.queries;
      first_.push_back(query == 0 || given == query ? query : first_.back());
    }
  }

  // True if the query sees the key. `row` is the number of the query's row among the rows of all batches, heads and
  // queries, in the order (B, H, Sq).
  bool visible(std::int64_t row, std::int64_t query, std::int64_t key) const {
    const std::int64_t at = query + sizes_.keys - sizes_.queries;
    if (key < first_key(row, query)) return false;
    return (!causal_ || key <= at) && (window_ <= 0 || key > at - window_);
  }

  // Returns the score of a key for a query. `product` is q . k.
  double at(double product, std::int64_t row, std::int64_t query, std::int64_t key) const {
    if (!visible(row, query, key)) return -INFINITY;
    double score = product * scale;
    if (softcap > 0) score = softcap * std::tanh(score / softcap);
    const std::int64_t first = first_key(row, query);
    if (bias_.empty()) return score;
    const double bias = bias_[static_cast<std::size_t>((row - first) * sizes_.keys + key - first)];
    return std::max(score + bias, arith::least_score(bias));
  }

  const double scale, softcap;

 private:
  std::int64_t first_key(std::int64_t row, std::int64_t query) const {
    const std::int64_t batch = row / (sizes_.heads * sizes_.queries);
    return first_.empty() ? 0 : first_[static_cast<std::size_t>(batch * sizes_.queries + query)];
  }

  const Sizes &sizes_;
  bool causal_;
  std::int64_t window_;
  std::vector<double> bias_;         // (B, H, Sq, Sk)
  std::vector<std::int64_t> first_;  // (B, Sq): the first key of the query's document; empty without documents
};

// Calls visit(batch, query, head, row) for every query row. `row` counts the rows in the order (B, H, Sq).
template <typename Visit>
void for_each_row(const Sizes &s, Visit visit) {
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.queries; ++i) visit(b, i, h, (b * s.heads + h) * s.queries + i);
}

// Offset of row (batch, position, head) in a (B, S, H, W) array.
std::size_t offset(std::int64_t batch, std::int64_t position, std::int64_t head, const Shape &shape) {
  return static_cast<std::size_t>(((batch * shape[1] + position) * shape[2] + head) * shape[3]);
}

double dot(const std::vector<double> &a, std::size_t at, const std::vector<double> &b, std::size_t bt, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[at + static_cast<std::size_t>(i)] * b[bt + static_cast<std::size_t>(i)];
  return sum;
}

void add_scaled(std::vector<double> &to, std::size_t at, double factor, const std::vector<double> &from, std::size_t ft,
                std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    to[at + static_cast<std::size_t>(i)] += factor * from[ft + static_cast<std::size_t>(i)];
}

std::vector<Array> evaluate_attention(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Shape &qs = in[0]->shape(), &ks = in[1]->shape(), &vs = in[2]->shape();
  const Sizes s = sizes_of(qs, ks, vs);
  const Scores scores(node, s, optional_input(in, 3), optional_input(in, 4));
  const std::vector<double> q = in[0]->doubles(), k = in[1]->doubles(), v = in[2]->doubles();
  std::vector<double> y(static_cast<std::size_t>(element_count(out[0].shape)), 0.0);
  std::vector<double> sums(static_cast<std::size_t>(element_count(out[1].shape)));
  std::vector<double> row_scores(static_cast<std::size_t>(s.keys));
  for_each_row(s, [&](std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t row) {
    const std::int64_t kv = h / (s.heads / s.kv_heads);
    double largest = -INFINITY, total = 0;
    for (std::int64_t j = 0; j < s.keys; ++j) {
      const double product = dot(q, offset(b, i, h, qs), k, offset(b, j, kv, ks), s.width);
      double &score = row_scores[static_cast<std::size_t>(j)] = scores.at(product, row, i, j);
      largest = std::max(largest, score);
    }
    if (largest == -INFINITY) {
      sums[static_cast<std::size_t>(row)] = -INFINITY;
      return;
    }
    for (double score : row_scores) total += std::exp(score - largest);
    sums[static_cast<std::size_t>(row)] = largest + std::log(total);
    for (std::int64_t j = 0; j < s.keys; ++j)
      add_scaled(y, offset(b, i, h, out[0].shape), std::exp(row_scores[static_cast<std::size_t>(j)] - largest) / total,
                 v, offset(b, j, kv, vs), s.value_width);
  });
  return {array_of(out[0], y), array_of(out[1], sums)};
}

// Computes dq, dk and dv. For each query row and key: p = exp(score - lse), dv += p dout, dp = dout . v, dscore =
// p (dp - dout . out). This is algorithm 4 of FlashAttention (arXiv 2205.14135), row by row.
std::vector<Array> evaluate_attention_gradient(const Node &node, std::span<const Array *const> in,
                                               std::span<const Type> out) {
  const Shape &qs = in[1]->shape(), &ks = in[2]->shape(), &vs = in[3]->shape(), &os = in[4]->shape();
  const Sizes s = sizes_of(qs, ks, vs);
  const Scores scores(node, s, optional_input(in, 6), optional_input(in, 7));
  const std::vector<double> dy = in[0]->doubles(), q = in[1]->doubles(), k = in[2]->doubles(), v = in[3]->doubles(),
                            y = in[4]->doubles(), sums = in[5]->doubles();
  std::vector<double> dq(q.size(), 0.0), dk(k.size(), 0.0), dv(v.size(), 0.0);
  for_each_row(s, [&](std::int64_t b, std::int64_t i, std::int64_t h, std::int64_t row) {
    const double sum = sums[static_cast<std::size_t>(row)];
    if (sum == -INFINITY) return;
    const std::int64_t kv = h / (s.heads / s.kv_heads);
    const std::size_t qi = offset(b, i, h, qs), yi = offset(b, i, h, os);
    const double mean = dot(dy, yi, y, yi, s.value_width);
    for (std::int64_t j = 0; j < s.keys; ++j) {
      const std::size_t kj = offset(b, j, kv, ks), vj = offset(b, j, kv, vs);
      const double product = dot(q, qi, k, kj, s.width);
      const double score = scores.at(product, row, i, j), p = std::exp(score - sum);
      add_scaled(dv, vj, p, dy, yi, s.value_width);
      double ds = p * (dot(dy, yi, v, vj, s.value_width) - mean) * scores.scale;
      if (scores.softcap > 0) {
        const double t = std::tanh(product * scores.scale / scores.softcap);
        ds *= 1 - t * t;
      }
      if (score == arith::kLeastScore) ds = 0;  // whatever q and k are
      add_scaled(dq, qi, ds, k, kj, s.width);
      add_scaled(dk, kj, ds, q, qi, s.width);
    }
  });
  return {array_of(out[0], dq), array_of(out[1], dk), array_of(out[2], dv)};
}

void differentiate_attention(GradientBuilder &builder, const Node &node) {
  if (std::ranges::none_of(node.inputs, [&](ValueId in) { return builder.wants(in); })) return;
  require(node.inputs.size() <= 3 || node.inputs[3] == ValueId::none || !builder.wants(node.inputs[3]),
          Code::unsupported, node.name, "{} has no gradient to a learned bias of its scores", node.op);
  std::vector<ValueId> inputs = {builder.gradient_of(node.outputs[0]),
                                 node.inputs[0],
                                 node.inputs[1],
                                 node.inputs[2],
                                 node.outputs[0],
                                 node.outputs.at(1)};
  inputs.insert(inputs.end(), node.inputs.begin() + 3, node.inputs.end());
  const std::vector<ValueId> gradients = builder.emit("FusedAttentionGrad", inputs, node.attributes, 3);
  for (std::size_t i = 0; i < 3; ++i) builder.contribute(node.inputs[i], gradients[i]);
}

// Returns the flops of a node's matrix products. For each batch and head, the node computes `of_width` products of size
// Sq x Sk x D and `of_value_width` products of size Sq x Sk x Dv. Input number `first` of the node is q. A causal mask
// halves the flops.
double product_flops(const NodeTypes &types, std::size_t first, double of_width, double of_value_width) {
  const Sizes s = sizes_of(types.input(first).shape, types.input(first + 1).shape, types.input(first + 2).shape);
  const double pairs = static_cast<double>(s.batch * s.heads) * static_cast<double>(s.queries * s.keys);
  const double share = types.node.attributes.integer("causal", 0) != 0 ? 0.5 : 1.0;
  return 2 * share * pairs *
         (of_width * static_cast<double>(s.width) + of_value_width * static_cast<double>(s.value_width));
}

double attention_flops(const NodeTypes &types, std::span<const Type>) { return product_flops(types, 0, 1, 1); }
double gradient_flops(const NodeTypes &types, std::span<const Type>) { return product_flops(types, 1, 3, 2); }

// Returns the shape (B, H, S, D) of an operand. If the operand is (B, S, H * D), the attribute named `count` gives H.
Shape heads_of(const NodeTypes &types, std::size_t operand, const char *count) {
  const Shape &shape = types.input(operand).shape;
  if (shape.size() == 4) return shape;
  const std::int64_t heads = types.node.attributes.integer(count, 0);
  require(shape.size() == 3 && heads > 0 && shape[2] % heads == 0, Code::graph, types.subject(),
          "{} {} does not divide operand {} of {}", count, heads, operand, to_text(shape));
  return {shape[0], heads, shape[1], shape[2] / heads};
}

// ONNX's Attention: q, k, v[, mask, past keys, past values, lengths] -> y, keys, values, scores. Operands are (B, H, S,
// D), or (B, S, H * D) with the numbers of heads as attributes.
std::vector<Type> infer_attention_file_form(const NodeTypes &types) {
  const Type &q = types.input(0);
  const Shape queries = heads_of(types, 0, "q_num_heads");
  Shape keys = heads_of(types, 1, "kv_num_heads"), values = heads_of(types, 2, "kv_num_heads");
  Type out = q;
  if (q.shape.size() == 4)
    out.shape[3] = values[3];
  else
    out.shape[2] = element_count({values[3], queries[1]});
  if (types.has(4)) {
    require(types.input(4).shape.size() == 4, Code::shape, types.subject(), "past keys {} are not (B, H, S, D)",
            to_text(types.input(4)));
    keys[2] = values[2] = keys[2] + types.input(4).shape[2];
  }
  return {out, {q.dtype, keys}, {q.dtype, values}, {q.dtype, {queries[0], queries[1], queries[2], keys[2]}}};
}

// Returns an estimate of the scratch that the gradient needs: one float32 number for each element of dout.
std::uint64_t gradient_scratch(const NodeTypes &types, bool) {
  return static_cast<std::uint64_t>(element_count(types.input(0).shape)) * sizeof(float);
}

}  // namespace

Family attention_family() {
  return {{.name = "Attention", .infer = infer_attention_file_form, .optional = {3, 4, 5, 6}, .file_only = true},
          {.name = "FusedAttention",
           .infer = infer_attention,
           .evaluate = evaluate_attention,
           .gradient = differentiate_attention,
           .flops = attention_flops,
           .optional = {3, 4},
           .wide = {3}},
          {.name = "FusedAttentionGrad",
           .infer = infer_attention_gradient,
           .evaluate = evaluate_attention_gradient,
           .flops = gradient_flops,
           .optional = {6, 7},
           .scratch = gradient_scratch}};
}

}  // namespace protrain::ops
