// Rules for attention of the domain com.microsoft. Most of these rules emit ONNX's Attention, whose operands have the
// shape (batch, sequence, heads * features), with the number of heads as an attribute.
#include <fmt/format.h>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kMostPairs = std::int64_t{1} << 28;  // elements of a table over queries and keys
constexpr double kMaskFilter = -10000;                      // ONNX Runtime's default for hidden scores

// Operands of ONNX's Attention.
struct Heads {
  ValueId q = ValueId::none, k = ValueId::none, v = ValueId::none;  // (B, S, heads * D)
  ValueId past_k = ValueId::none, past_v = ValueId::none;           // (B, heads, P, D)
  ValueId bias = ValueId::none;                                     // (B or 1, heads or 1, S, P + S)
  std::int64_t count = 0, kv_count = 0;
  bool causal = false;
};

std::int64_t head_count(const Node &node, const char *attribute) {
  const std::int64_t count = node.attributes.integer(attribute, 0);
  require(count > 0, Code::graph, node.name, "{} is {}; expected a positive number", attribute, count);
  return count;
}

void refuse_input(const Node &node, std::size_t input, const char *what) {
  require(!has(node, input), Code::unsupported, node.name, "has {}; export the model without it", what);
}

// Refuses a cache of earlier tokens, unless it holds no tokens.
void refuse_past(const Canonical &c, const Node &node, std::size_t input) {
  require(!has(node, input) || element_count(c.shape(node.inputs[input])) == 0, Code::unsupported, node.name,
          "has a cache of earlier tokens; set past=none, or export the model without a cache");
}

void refuse_attribute(const Node &node, const char *attribute) {
  require(node.attributes.integer(attribute, 0) == 0, Code::unsupported, node.name, "{}={} is not supported", attribute,
          node.attributes.integer(attribute, 0));
}

ValueId sum_of(Canonical &c, ValueId a, ValueId b) {
  return a == ValueId::none ? b : b == ValueId::none ? a : c.add("Add", {a, b});
}

// Returns 0, 1, ..., count - 1 in the given shape.
ValueId counting(Canonical &c, DType dtype, std::int64_t count, const Shape &shape) {
  Integers values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(i);
  return c.rewriter().constant(graph::Array::from_integers({dtype, shape}, values));
}

std::vector<ValueId> split_last(Canonical &c, ValueId x, const Integers &sizes) {
  const auto axis = static_cast<std::int64_t>(c.shape(x).size()) - 1;
  return c.add_all("Split", {x}, {{"axis", axis}, {"split", sizes}}, sizes.size());
}

void become_attention(Canonical &c, const Node &node, const Heads &h) {
  Attributes attributes = {
      {"q_num_heads", h.count}, {"kv_num_heads", h.kv_count}, {"is_causal", std::int64_t{h.causal}}};
  const double scale = node.attributes.real("scale", 0), softcap = node.attributes.real("softcap", 0);
  if (scale != 0) attributes.set("scale", scale);
  if (softcap > 0) attributes.set("softcap", softcap);
  std::vector<ValueId> inputs = {h.q, h.k, h.v, h.bias, h.past_k, h.past_v};
  while (inputs.back() == ValueId::none) inputs.pop_back();
  c.become(node, "Attention", inputs, attributes);
}

// Returns a boolean that is true for the keys that `mask` shows. It broadcasts to (B, 1, S, T) for B samples, S queries
// and T keys. A mask (B) holds each sample's number of keys. A mask (2 B) holds the end of each sample's keys, and then
// the start of each sample's keys. A mask (B, T) or (B, S, T) holds a positive number for each visible key.
ValueId visible_keys(Canonical &c, const Node &node, ValueId mask, const Shape &scores) {
  const Type type = c.type(mask);
  const std::int64_t batch = scores[0], keys = scores[2];
  const bool lengths = type.shape == Shape{batch}, spans = type.shape == Shape{2 * batch};
  if (lengths || spans) {
    const ValueId at = counting(c, type.dtype, keys, {1, 1, 1, keys});
    std::vector<ValueId> bounds = {mask};
    if (spans) bounds = split_last(c, mask, {batch, batch});
    ValueId visible = c.add("Less", {at, c.reshape(bounds[0], {batch, 1, 1, 1})});
    if (spans) visible = c.add("And", {visible, c.add("LessOrEqual", {c.reshape(bounds[1], {batch, 1, 1, 1}), at})});
    return visible;
  }
  const bool rows = type.shape == Shape{batch, keys}, full = type.shape == scores;
  require(rows || full, Code::unsupported, node.name,
          "a mask of {} is not supported; a length per sample, or {} or {}, is", to_text(type.shape),
          to_text(Shape{batch, keys}), to_text(scores));
  const ValueId shown = c.add("Greater", {mask, c.scalar(type.dtype, 0)});
  return c.reshape(shown, {batch, 1, full ? scores[1] : 1, keys});
}

// Adds the mask, if the node has one, to h.bias.
void add_mask(Canonical &c, const Node &node, std::size_t input, Heads &h) {
  if (!has(node, input)) return;
  const Shape q = c.shape(h.q);
  const std::int64_t past = h.past_k == ValueId::none ? 0 : c.shape(h.past_k).at(2);
  const ValueId visible = visible_keys(c, node, node.inputs[input], {q[0], q[1], past + c.shape(h.k)[1]});
  const DType dtype = c.type(h.q).dtype;
  const double hidden = node.attributes.real("mask_filter_value", kMaskFilter);
  h.bias = sum_of(c, c.add("Where", {visible, c.scalar(dtype, 0), c.scalar(dtype, hidden)}), h.bias);
}

// Joins keys and values to (2, B, heads, S, D) and makes this the output `present`.
void give_present(Canonical &c, const Node &node, const Heads &h) {
  if (!c.rewriter().is_read(node, 1)) return;
  const Shape k = c.shape(h.k), v = c.shape(h.v);
  require(k == v, Code::unsupported, node.name, "keys {} and values {} differ and cannot be joined in one output",
          to_text(k), to_text(v));
  std::vector<ValueId> parts;
  for (ValueId x : {h.k, h.v}) {
    const ValueId apart = c.reshape(x, {k[0], k[1], h.count, k[2] / h.count});
    const ValueId heads_first = c.transpose(apart, {0, 2, 1, 3});
    parts.push_back(c.reshape(heads_first, {1, k[0], h.count, k[1], k[2] / h.count}));
  }
  c.pass(with_output(node, 1), c.add("Concat", parts, {{"axis", std::int64_t{0}}}));
}

// Returns how many columns of the weights belong to the queries, to the keys and to the values.
Integers widths_in(const Node &node, const Shape &weights, std::int64_t heads) {
  Integers widths = node.attributes.integers("qkv_hidden_sizes");
  require(weights.size() == 2, Code::shape, node.name, "weights of {} are no matrix", to_text(weights));
  if (widths.empty()) widths = Integers(3, weights[1] / 3);
  const bool fits = widths.size() == 3 && widths[0] == widths[1] && widths[0] > 0 && widths[2] > 0 &&
                    widths[0] % heads == 0 && widths[2] % heads == 0 && widths[0] < weights[1] &&
                    widths[2] < weights[1] && widths[0] + widths[1] + widths[2] == weights[1];
  require(fits, Code::shape, node.name, "{} columns of weights do not split into queries, keys and values of {} heads",
          weights[1], heads);
  return widths;
}

// Handles com.microsoft's Attention: emits the product that computes q, k and v, and ONNX's Attention. Inputs: input
// (B, S, I), weights (I, columns for q, k and v)[, bias, mask, past, bias of scores].
bool contrib_attention(Canonical &c, Node &node) {
  refuse_past(c, node, 4);
  refuse_attribute(node, "do_rotary");
  const ValueId x = node.inputs.at(0), weights = node.inputs.at(1);
  require(c.shape(x).size() == 3, Code::shape, node.name, "{} is not (batch, sequence, features)", to_text(c.shape(x)));
  Heads h;
  h.count = h.kv_count = head_count(node, "num_heads");
  const Integers widths = widths_in(node, c.shape(weights), h.count);
  std::vector<ValueId> operands = {x, weights};
  if (has(node, 2)) operands.push_back(node.inputs[2]);
  const std::vector<ValueId> parts = split_last(c, c.add("MatMul", operands), widths);
  h.q = parts[0];
  h.k = parts[1];
  h.v = parts[2];
  h.causal = node.attributes.integer("unidirectional", 0) != 0;
  if (has(node, 5)) h.bias = node.inputs[5];
  add_mask(c, node, 3, h);
  give_present(c, node, h);
  if (c.rewriter().is_read(node, 0)) become_attention(c, with_output(node, 0), h);
  return true;
}

// Splits (B, S, heads, count, D) into `count` values (B, S, heads * D).
std::vector<ValueId> unpacked(Canonical &c, const Node &node, ValueId packed, std::int64_t count) {
  const Shape shape = c.shape(packed);
  require(shape.size() == 5 && shape[3] == count, Code::shape, node.name, "{} is not (batch, sequence, heads, {}, {})",
          to_text(shape), count, "features");
  const Attributes attributes = {{"axis", std::int64_t{3}}, {"split", Integers(static_cast<std::size_t>(count), 1)}};
  std::vector<ValueId> parts = c.add_all("Split", {packed}, attributes, static_cast<std::size_t>(count));
  for (ValueId &part : parts) part = c.reshape(part, {shape[0], shape[1], element_count({shape[2], shape[4]})});
  return parts;
}

// Brings keys or values (B, heads, S, D) to (B, S, heads * D).
ValueId heads_joined(Canonical &c, ValueId x) {
  const Shape shape = c.shape(x);
  if (shape.size() != 4) return x;
  return c.reshape(c.transpose(x, {0, 2, 1, 3}), {shape[0], shape[2], element_count({shape[1], shape[3]})});
}

// Sets q, k and v. The node has three separate inputs for them, or an input for q and an input with k and v packed
// together, or one input with all three packed together.
void collect_heads(Canonical &c, const Node &node, Heads &h) {
  h.q = node.inputs.at(0);
  if (!has(node, 1)) {
    const std::vector<ValueId> parts = unpacked(c, node, h.q, 3);
    h.q = parts[0];
    h.k = parts[1];
    h.v = parts[2];
  } else if (!has(node, 2)) {
    const std::vector<ValueId> parts = unpacked(c, node, node.inputs[1], 2);
    h.k = parts[0];
    h.v = parts[1];
  } else {
    h.k = heads_joined(c, node.inputs[1]);
    h.v = heads_joined(c, node.inputs[2]);
  }
  for (ValueId x : {h.q, h.k, h.v})
    require(c.shape(x).size() == 3, Code::shape, node.name, "{} is not (batch, sequence, features)",
            to_text(c.shape(x)));
}

// Adds the bias. It is one vector, which holds the biases of queries, keys and values one after the other. Keys and
// values that come as (B, heads, S, D) get no bias.
void add_projection_bias(Canonical &c, const Node &node, Heads &h) {
  if (!has(node, 3)) return;
  const Integers widths = {c.shape(h.q)[2], c.shape(h.k)[2], c.shape(h.v)[2]};
  require(c.shape(node.inputs[3]) == Shape{widths[0] + widths[1] + widths[2]}, Code::shape, node.name,
          "a bias of {} for queries, keys and values of {}, {} and {} features", to_text(c.shape(node.inputs[3])),
          widths[0], widths[1], widths[2]);
  const std::vector<ValueId> parts = split_last(c, node.inputs[3], widths);
  h.q = c.add("Add", {h.q, parts[0]});
  if (has(node, 1) && c.shape(node.inputs[1]).size() == 4) return;
  h.k = c.add("Add", {h.k, parts[1]});
  h.v = c.add("Add", {h.v, parts[2]});
}

bool multi_head_attention(Canonical &c, Node &node) {
  refuse_input(node, 9, "a cache_indirection");
  require(!c.rewriter().is_read(node, 3), Code::unsupported, node.name, "the output qk is read");
  require(has(node, 6) == has(node, 7), Code::graph, node.name, "past keys and past values go together");
  Heads h;
  h.count = h.kv_count = head_count(node, "num_heads");
  collect_heads(c, node, h);
  add_projection_bias(c, node, h);
  if (has(node, 6)) {
    h.past_k = node.inputs[6];
    h.past_v = node.inputs[7];
  }
  h.causal = node.attributes.integer("unidirectional", 0) != 0;
  if (has(node, 5)) h.bias = node.inputs[5];
  add_mask(c, node, 4, h);
  become_attention(c, node, h);
  return true;
}

// Applies a rotary embedding to x, (B, S, heads * D) or (B, heads, S, D). The node's tables of cosines and sines have a
// row for each position. If `positions` is none, the positions are 0, 1, ...
ValueId rotated(Canonical &c, const Node &node, ValueId x, std::int64_t heads, ValueId positions) {
  const bool grouped = node.op.ends_with("GroupQueryAttention");
  ValueId cos = node.inputs.at(grouped ? 7 : 2), sin = node.inputs.at(grouped ? 8 : 3);
  const Shape table = c.shape(cos), shape = c.shape(x);
  require(table.size() == 2 && c.shape(sin) == table, Code::shape, node.name,
          "cosines {} and sines {}; expected two tables (positions, features)", to_text(table), to_text(c.shape(sin)));
  const std::int64_t length = shape.at(shape.size() - 2);
  if (shape.size() == 3)
    require(shape[2] % heads == 0, Code::shape, node.name, "{} features for {} heads", shape[2], heads);
  require(table[0] >= length || positions != ValueId::none, Code::shape, node.name, "{} positions, and a table of {}",
          length, table[0]);
  std::vector<ValueId> inputs = {x, cos, sin, positions};
  if (positions == ValueId::none) {
    inputs.pop_back();
    for (std::size_t i : {1, 2}) {
      const Attributes rows = {{"starts", Integers{0}}, {"ends", Integers{length}}, {"axes", Integers{0}}};
      inputs[i] = c.reshape(c.add("Slice", {inputs[i]}, rows), {1, length, table[1]});
    }
  }
  return c.add("RotaryEmbedding", inputs,
               {{"interleaved", node.attributes.integer(grouped ? "rotary_interleaved" : "interleaved", 0)},
                {"num_heads", heads},
                {"rotary_embedding_dim", 2 * table[1]}});
}

// Handles com.microsoft's RotaryEmbedding. If its positions are a single number, that is the position of the first
// token, and the other tokens follow.
bool contrib_rotary(Canonical &c, Node &node) {
  refuse_attribute(node, "is_packed_batching");
  require(node.attributes.real("scale", 1) == 1, Code::unsupported, node.name, "a scale of {} is not supported",
          node.attributes.real("scale", 1));
  const ValueId x = node.inputs.at(0);
  const Shape shape = c.shape(x), table = c.shape(node.inputs.at(2));
  require((shape.size() == 3 || shape.size() == 4) && table.size() == 2 && table[1] > 0, Code::shape, node.name,
          "{} with tables of {}; expected 3 or 4 axes, and 2", to_text(shape), to_text(table));
  std::int64_t heads = node.attributes.integer("num_heads", 0);
  if (heads <= 0) heads = shape.size() == 4 ? shape[1] : std::max<std::int64_t>(1, shape[2] / (2 * table[1]));
  ValueId positions = node.inputs.at(1);
  if (c.shape(positions).size() == 1) {
    const std::int64_t length = shape[shape.size() - 2];
    positions = c.add("Add", {counting(c, c.type(positions).dtype, length, {1, length}), positions});
  }
  c.pass(node, rotated(c, node, x, heads, positions));
  return true;
}

// Returns a mask that hides from each query the keys after it, and the keys `window` or more positions before it.
ValueId window_mask(Canonical &c, const Node &node, DType dtype, const Shape &scores, std::int64_t window) {
  require(scores[0] <= kMostPairs / std::max<std::int64_t>(1, scores[1]), Code::limit, node.name,
          "a mask of {} is too large", to_text(scores));
  const Type type = {dtype, {1, 1, scores[0], scores[1]}};
  return c.constant(fmt::format("window mask {}", window), type, [&] {
    std::vector<double> values;
    for (std::int64_t i = 0; i < scores[0]; ++i)
      for (std::int64_t j = 0; j < scores[1]; ++j)
        values.push_back(j <= i && j > i - window ? 0 : -std::numeric_limits<double>::infinity());
    return graph::Array::from_doubles(type, values).compact();
  });
}

void refuse_parts_of_group_query(Canonical &c, const Node &node) {
  for (std::size_t past : {3, 4}) refuse_past(c, node, past);
  refuse_input(node, 11, "a head_sink");
  for (std::size_t input : {12, 13}) refuse_input(node, input, "a quantised cache");
  for (std::size_t input : {14, 15}) refuse_input(node, input, "a normalization of queries or keys");
  refuse_input(node, 16, "query_seqlens");
  for (const char *key : {"kv_cache_bit_width", "qk_output", "sliding_window_cache"}) refuse_attribute(node, key);
  require(node.attributes.integer("smooth_softmax", 0) <= 0, Code::unsupported, node.name,
          "smooth_softmax is not supported");
  require(node.attributes.integer("causal", 1) != 0, Code::unsupported, node.name, "causal=0 is not supported");
  require(!c.rewriter().is_read(node, 3), Code::unsupported, node.name, "the output qk is read");
}

// Handles GroupQueryAttention without a cache of earlier tokens. Ignores the samples' lengths (seqlens_k), because
// tokens beyond a sample's length come last, and no token within the length sees them.
bool group_query_attention(Canonical &c, Node &node) {
  refuse_parts_of_group_query(c, node);
  Heads h;
  h.count = head_count(node, "num_heads");
  h.kv_count = head_count(node, "kv_num_heads");
  h.q = node.inputs.at(0);
  const Shape shape = c.shape(h.q);
  require(shape.size() == 3 && has(node, 1) == has(node, 2), Code::shape, node.name,
          "queries {}; expected (batch, sequence, features), and keys and values together", to_text(shape));
  if (has(node, 1)) {
    h.k = node.inputs[1];
    h.v = node.inputs[2];
  } else {
    require(h.count <= kMostPairs && h.kv_count <= kMostPairs && shape[2] % (h.count + 2 * h.kv_count) == 0,
            Code::shape, node.name, "{} features do not split into {} and twice {} heads", shape[2], h.count,
            h.kv_count);
    const std::int64_t width = shape[2] / (h.count + 2 * h.kv_count);
    const auto parts = split_last(c, h.q, {h.count * width, h.kv_count * width, h.kv_count * width});
    h.q = parts[0];
    h.k = parts[1];
    h.v = parts[2];
  }
  require(c.shape(h.k).size() == 3 && c.shape(h.k)[1] == shape[1], Code::unsupported, node.name,
          "keys {} for queries {}: a cache is not supported", to_text(c.shape(h.k)), to_text(c.shape(h.q)));
  if (node.attributes.integer("do_rotary", 0) != 0) {
    require(has(node, 7) && has(node, 8), Code::graph, node.name, "do_rotary needs cos_cache and sin_cache");
    const ValueId positions = has(node, 9) ? node.inputs[9] : ValueId::none;
    h.q = rotated(c, node, h.q, h.count, positions);
    h.k = rotated(c, node, h.k, h.kv_count, positions);
  }
  const std::int64_t window = node.attributes.integer("local_window_size", -1);
  h.causal = window <= 0 || window >= shape[1];
  if (has(node, 10)) h.bias = node.inputs[10];
  if (!h.causal) h.bias = sum_of(c, h.bias, window_mask(c, node, c.type(h.q).dtype, {shape[1], shape[1]}, window));
  become_attention(c, node, h);
  return true;
}

// Returns the bucket of a distance, as in T5: the number of a row in a table of relative position biases. `distance` is
// the key's position minus the query's. Each short distance has a row of its own. Longer distances share rows, spaced
// by the logarithm of the distance, and all from `most` on share the last row. `both_sides`: true: keys after the query
// use the second half of the table; false: such keys count as distance 0.
std::int64_t bucket_of(std::int64_t distance, std::int64_t buckets, std::int64_t most, bool both_sides) {
  std::int64_t first = 0;
  if (both_sides) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  } else {
    distance = std::max<std::int64_t>(0, -distance);
  }
  const std::int64_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const float far = std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
                    std::log(static_cast<float>(most) / static_cast<float>(exact));
  const auto steps = static_cast<std::int64_t>(far * static_cast<float>(buckets - exact));
  return first + std::min(exact + steps, buckets - 1);
}

// Looks up the bias of each pair of a query and a key by their distance. Inputs: table (buckets, heads), number of
// queries, number of keys. Output: (1, heads, queries, keys).
bool relative_position_bias(Canonical &c, Node &node) {
  const Shape table = c.shape(node.inputs.at(0));
  Integers lengths;
  for (std::size_t i : {1, 2}) {
    const graph::Array *length = c.constant_of(node.inputs.at(i));
    require(length != nullptr && element_count(length->shape()) == 1, Code::unsupported, node.name,
            "lengths of queries and keys depend on data");
    lengths.push_back(length->integers()[0]);
  }
  const std::int64_t most = node.attributes.integer("max_distance", 128);
  const bool both_sides = node.attributes.integer("is_bidirectional", 0) != 0;
  const std::int64_t exact = (table.empty() ? 0 : table[0]) / (both_sides ? 4 : 2);
  require(table.size() == 2 && exact >= 1 && most > exact, Code::shape, node.name,
          "a table of {} for distances up to {}", to_text(table), most);
  require(lengths[0] > 0 && lengths[1] > 0 && lengths[0] <= kMostPairs / lengths[1], Code::limit, node.name,
          "a bias for {} queries and {} keys", lengths[0], lengths[1]);
  const Type pairs = {DType::i64, {lengths[0], lengths[1]}};
  const ValueId indices = c.constant(fmt::format("buckets {} {} {}", table[0], most, both_sides), pairs, [&] {
    Integers rows;
    for (std::int64_t i = 0; i < lengths[0]; ++i)
      for (std::int64_t j = 0; j < lengths[1]; ++j) rows.push_back(bucket_of(j - i, table[0], most, both_sides));
    return graph::Array::from_integers(pairs, rows);
  });
  const ValueId gathered = c.add("Gather", {node.inputs[0], indices}, {{"axis", std::int64_t{0}}});
  const ValueId heads_first = c.transpose(gathered, {2, 0, 1});
  c.become(node, "Reshape", {heads_first}, {{"shape", Shape{1, table[1], lengths[0], lengths[1]}}});
  return true;
}

}  // namespace

Rules contrib_attention_rules() {
  return {{"com.microsoft::Attention", contrib_attention},
          {"com.microsoft::MultiHeadAttention", multi_head_attention},
          {"com.microsoft::GroupQueryAttention", group_query_attention},
          {"com.microsoft::RotaryEmbedding", contrib_rotary},
          {"com.microsoft::RelativePositionBias", relative_position_bias}};
}

}  // namespace protrain::passes
