// Rules for quantised tensors: pairs of QuantizeLinear and DequantizeLinear, and products with quantised weights.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

constexpr std::int64_t kMostWeights = std::int64_t{1} << 40;  // along one axis; so that sizes do not overflow
constexpr int kMostClips = 4;  // Min and Max nodes that are stepped over; a Clip is one or two of them

bool same_values(const Canonical &c, const Node &a, const Node &b, std::size_t input) {
  if (!has(a, input) || !has(b, input)) return has(a, input) == has(b, input);
  const graph::Array *left = c.constant_of(a.inputs[input]), *right = c.constant_of(b.inputs[input]);
  return a.inputs[input] == b.inputs[input] || (left != nullptr && right != nullptr && left->same_as(*right));
}

// True if both nodes use the same scale and zero point for each element.
bool same_scales(const Canonical &c, const Node &a, const Node &b) {
  return same_values(c, a, b, 1) && same_values(c, a, b, 2) &&
         a.attributes.integer("axis", 1) == b.attributes.integer("axis", 1) &&
         a.attributes.integer("block_size", 0) == b.attributes.integer("block_size", 0);
}

// Integers before they are clipped, and the range to which they are clipped.
struct Unclipped {
  ValueId integers = ValueId::none;
  std::int64_t low = std::numeric_limits<std::int64_t>::min(), high = std::numeric_limits<std::int64_t>::max();
};

// Steps back through nodes that clip integers by one constant number: the Min and Max that a Clip has become. PyTorch
// clips the integers of a range that is narrower than their type, such as 0 to 127.
Unclipped unclipped(const Canonical &c, ValueId integers) {
  Unclipped found{.integers = integers};
  const Shape shape = c.shape(integers);
  const Node *made = c.rewriter().producer(integers);
  for (int i = 0; i < kMostClips && made != nullptr; ++i) {
    if (!one_of(made->op, {"Max", "Min"}) || made->inputs.size() != 2) break;
    const std::size_t at = c.constant_of(made->inputs[0]) != nullptr ? 0 : 1;
    const graph::Array *number = c.constant_of(made->inputs[at]);
    if (number == nullptr || number->stored_count() != 1 || c.shape(made->inputs[1 - at]) != shape) break;
    const std::int64_t bound = std::clamp(number->stored_integer(0), found.low, found.high);
    (made->op == "Max" ? found.low : found.high) = bound;
    found.integers = made->inputs[1 - at];
    made = c.rewriter().producer(found.integers);
  }
  return found;
}

// DequantizeLinear(QuantizeLinear(x)) is FakeQuantize(x), also if the integers are clipped in between. Any other
// DequantizeLinear is a core operator already.
bool dequantize(Canonical &c, Node &node) {
  const Unclipped before = unclipped(c, node.inputs.at(0));
  const Node *made = c.rewriter().producer(before.integers);
  if (made == nullptr || made->op != "QuantizeLinear" || !same_scales(c, *made, node)) return false;
  const Node quantize = *made;
  const DType integers = c.type(node.inputs[0]).dtype;
  const std::int64_t bits = quantize.attributes.integer("bits", static_cast<std::int64_t>(8 * size_of(integers)));
  require(bits > 0 && bits <= 16, Code::arg, quantize.subject(), "integers of {} bits", bits);
  const bool is_signed = integers == DType::i8 || integers == DType::i16;
  const std::int64_t count = std::int64_t{1} << bits, low = is_signed ? -count / 2 : 0;
  Attributes attributes = {{"low", std::clamp(low, before.low, before.high)},
                           {"high", std::clamp(low + count - 1, before.low, before.high)}};
  for (const char *key : {"axis", "block_size"})
    if (quantize.attributes.has(key)) attributes.set(key, quantize.attributes.integer(key, 0));
  c.become(node, "FakeQuantize", quantize.inputs, attributes);
  return true;
}

// Refuses a QuantizeLinear of data. The refusal has no effect if dequantize() later replaces this node together with
// the DequantizeLinear that reads it. A QuantizeLinear of constants is not refused but evaluated.
bool quantize(Canonical &c, Node &node) {
  if (c.constant_of(node.inputs.at(0)) != nullptr) return false;
  fail(Code::unsupported, "",
       "no DequantizeLinear of the same scale and zero point reads its integers, at most behind a Clip by numbers; "
       "export the model with the two in pairs around floats (QDQ)");
}

// The sizes of a MatMulNBits: weights (n, k) in blocks of `block` elements along k.
struct BlockedWeights {
  std::int64_t n, k, bits, block;
  std::int64_t blocks() const { return divided_up(k, block); }
};

BlockedWeights blocked_weights(const Canonical &c, const Node &node) {
  const BlockedWeights w = {.n = node.attributes.integer("N", 0),
                            .k = node.attributes.integer("K", 0),
                            .bits = node.attributes.integer("bits", 4),
                            .block = node.attributes.integer("block_size", 0)};
  const std::string &subject = node.subject();
  require(w.bits == 4 || w.bits == 8, Code::unsupported, subject,
          "has weights of {} bits; quantise them to 4 or 8 bits", w.bits);
  const bool sized = w.n > 0 && w.k > 0 && w.k <= kMostWeights && w.block >= 2 && w.block <= kMostWeights;
  require(sized && w.block % 2 == 0, Code::arg, subject, "weights of ({}, {}) in blocks of {}", w.n, w.k, w.block);
  const Shape expected = {w.n, w.blocks(), w.block * w.bits / 8}, &found = c.shape(node.inputs.at(1));
  require(found == expected, Code::shape, subject, "weights of {}; expected {}", to_text(found), to_text(expected));
  return w;
}

// Throws if the node has a group index (g_idx) that may reorder its weights. Accepts one that puts each element i into
// group i / block, because the node does the same without a group index.
void require_order(const Canonical &c, const Node &node, const BlockedWeights &w) {
  if (!has(node, 4)) return;
  const graph::Array *groups = c.constant_of(node.inputs[4]);
  bool plain = groups != nullptr && groups->shape() == Shape{w.k};
  const std::vector<std::int64_t> of = plain ? groups->integers() : std::vector<std::int64_t>();
  for (std::size_t i = 0; i < of.size(); ++i) plain = plain && of[i] == static_cast<std::int64_t>(i) / w.block;
  require(plain, Code::unsupported, node.subject(),
          "has a group index (g_idx) that reorders its weights; quantise them without one (act_order=False)");
}

// Returns the weights (n, k) as floats.
ValueId dequantized_weights(Canonical &c, const Node &node, const BlockedWeights &w) {
  const std::int64_t padded = w.blocks() * w.block, zero_row = divided_up(w.blocks(), 2) * 2;
  const bool packed = w.bits == 4;
  Attributes attributes = {{"axis", std::int64_t{1}}, {"block_size", w.block}};
  if (packed) attributes.set("bits", w.bits);
  if (packed) attributes.set("shape", Shape{w.n, padded});
  std::vector<ValueId> inputs = {c.reshape(node.inputs[1], packed ? Shape{w.n * padded / 2} : Shape{w.n, padded}),
                                 c.reshape(node.inputs.at(2), {w.n, w.blocks()})};
  const bool zeros = has(node, 3), packed_zeros = zeros && packed && !is_float(c.type(node.inputs[3]).dtype);
  if (packed_zeros) attributes.set("zero_row", zero_row);
  if (zeros)
    inputs.push_back(c.reshape(node.inputs[3], packed_zeros ? Shape{w.n * zero_row / 2} : Shape{w.n, w.blocks()}));
  else
    attributes.set("zero_point", std::int64_t{1} << (w.bits - 1));
  const ValueId weights = c.add("DequantizeLinear", inputs, attributes);
  if (padded == w.k) return weights;
  using Integers = std::vector<std::int64_t>;
  return c.add("Slice", {weights},
               {{"starts", Integers{0}}, {"ends", Integers{w.k}}, {"axes", Integers{1}}, {"steps", Integers{1}}});
}

// Turns MatMulNBits into a MatMul with dequantised weights. Inputs: a (..., k), weights, scales[, zero points, group
// index, bias (n)]. Output: (..., n).
bool matmul_nbits(Canonical &c, Node &node) {
  const BlockedWeights w = blocked_weights(c, node);
  require_order(c, node, w);
  require(c.shape(node.inputs[0]).size() >= 2, Code::shape, node.subject(), "multiplies {}, not matrices",
          to_text(c.shape(node.inputs[0])));
  std::vector<ValueId> operands = {node.inputs[0], dequantized_weights(c, node, w)};
  if (has(node, 5)) operands.push_back(node.inputs[5]);
  c.become(node, "MatMul", operands, {{"trans_b", std::int64_t{1}}});
  return true;
}

// A table of integers in blocks along its last axis.
struct QuantisedTable {
  Shape shape;  // of the elements
  std::int64_t block;
  bool packed;       // two elements in a byte
  bool pairs_zeros;  // two zero points in a byte
};

QuantisedTable quantised_table(const Canonical &c, const Node &node) {
  const std::string &subject = node.subject();
  const std::int64_t bits = node.attributes.integer("bits", 4);
  const bool four_bit_type = node.attributes.has("shape"), bytes = c.type(node.inputs.at(0)).dtype == DType::u8;
  QuantisedTable table = {.shape = four_bit_type ? node.attributes.integers("shape") : c.shape(node.inputs[0]),
                          .block = node.attributes.integer("block_size", 128),
                          .packed = bits == 4,
                          .pairs_zeros = bits == 4 && !four_bit_type};
  require(four_bit_type || (bytes && (bits == 4 || bits == 8)), Code::unsupported, subject,
          "has elements of {} bits in {}; quantise them to 4 or 8 bits", bits, to_text(c.type(node.inputs[0])));
  const bool sized = table.shape.size() >= 2 && table.shape.back() <= kMostWeights && table.block > 0;
  require(sized, Code::shape, subject, "a table of {} in blocks of {}", to_text(table.shape), table.block);
  if (table.pairs_zeros) table.shape.back() *= 2;
  const std::size_t rank = table.shape.size();
  const bool rows = resolve_axis(node.attributes.integer("gather_axis", 0), rank, subject) == 0 &&
                    resolve_axis(node.attributes.integer("quantize_axis", 1), rank, subject) == rank - 1;
  require(rows && (!table.packed || table.shape.back() % 2 == 0), Code::unsupported, subject,
          "gathers {} otherwise than by rows of whole bytes, in blocks along the last axis", to_text(table.shape));
  return table;
}

// Gathers rows of integers, of scales and of zero points, and dequantises what was gathered.
bool gather_block_quantized(Canonical &c, Node &node) {
  const QuantisedTable table = quantised_table(c, node);
  const auto picked = [&](ValueId from) {
    return c.add("Gather", {from, node.inputs.at(1)}, {{"axis", std::int64_t{0}}});
  };
  Shape shape = c.shape(node.inputs.at(1)), stored = table.shape;
  shape.insert(shape.end(), table.shape.begin() + 1, table.shape.end());
  if (table.packed) stored.back() /= 2;
  Attributes attributes = {{"axis", static_cast<std::int64_t>(shape.size()) - 1}, {"block_size", table.block}};
  if (table.packed) {
    attributes.set("bits", std::int64_t{4});
    attributes.set("shape", shape);
    attributes.set("signed", node.attributes.integer("signed", 0));
  }
  std::vector<ValueId> inputs = {picked(c.reshape(node.inputs[0], stored)), picked(node.inputs.at(2))};
  const bool zeros = has(node, 3);
  if (zeros) inputs.push_back(picked(node.inputs[3]));
  if (zeros && table.pairs_zeros) attributes.set("zero_row", divided_up(c.shape(inputs[1]).back(), 2) * 2);
  if (!zeros && !node.attributes.has("shape")) attributes.set("zero_point", std::int64_t{table.packed ? 8 : 128});
  c.become(node, "DequantizeLinear", inputs, attributes);
  return true;
}

}  // namespace

Rules quantize_rules() {
  return {{"DequantizeLinear", dequantize},
          {"QuantizeLinear", quantize},
          {"com.microsoft::MatMulNBits", matmul_nbits},
          {"com.microsoft::GatherBlockQuantized", gather_block_quantized}};
}

}  // namespace protrain::passes
