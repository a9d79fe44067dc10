// Quantised tensors: integers with scales and zero points, which stand for floats (arith/quantize.h).
//   DequantizeLinear(q, scale, zero_point)   the floats that integers stand for
//   QuantizeLinear(x, scale, zero_point)     the nearest integers, clipped to their type; evaluated when a model opens
//   FakeQuantize(x, scale, zero_point)       quantises and dequantises, for quantisation-aware training
// graph/scale_blocks.h says which elements share a scale. Scales and zero points have no gradient.
//
// DequantizeLinear keeps ONNX's attributes, and has more for weights of four bits and for MatMulNBits:
//   bits = 4, signed, shape   q is uint8 with two elements in a byte, the lower half first; `shape` is that of the
//                             elements
//   code                      "nf4" (of four bits) or "dynamic" (uint8): q holds codes (arith/codes.h), and there are
//                             no zero points
//   zero_row                  the zero points are uint8 with two in a byte as well, and their last axis is padded to
//                             this length
//   zero_point                the zero point if that input is absent
//   output_dtype              the type of the result; the scale's if absent
#include <cmath>

#include "arith/codes.h"
#include "base/text.h"
#include "graph/scale_blocks.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::scale_blocks;
using graph::ScaleBlocks;
using graph::ValueId;

struct Bounds {
  double low, high;
};

Bounds integer_bounds(DType dtype, std::int64_t bits) {
  const bool is_signed = dtype == DType::i8 || dtype == DType::i16;
  const double count = std::exp2(static_cast<double>(bits));
  return is_signed ? Bounds{-count / 2, count / 2 - 1} : Bounds{0, count - 1};
}

bool is_quantised(DType dtype) {
  return dtype == DType::i8 || dtype == DType::u8 || dtype == DType::i16 || dtype == DType::u16;
}

bool is_packed(const Node &node) { return node.attributes.integer("bits", 8) == 4; }

void require_code(const NodeTypes &types) {
  const std::string code = types.node.attributes.text("code", "");
  const bool known = code.empty() || (code == "nf4" && is_packed(types.node)) ||
                     (code == "dynamic" && types.input(0).dtype == DType::u8);
  require(known && (code.empty() || !types.has(2)), Code::arg, types.subject(), "codes of \"{}\" in {}{}",
          printable(code), to_text(types.input(0)), types.has(2) ? " with zero points" : "");
}

// Returns the shape of a tensor's elements. A packed tensor has two elements in a byte, and the node's attribute
// `shape` gives the shape of the elements.
Shape shape_of_elements(const Node &node, const Shape &shape) {
  return is_packed(node) ? node.attributes.integers("shape") : shape;
}

void require_bytes(const Type &packed, std::int64_t elements, const std::string &subject) {
  require(packed.dtype == DType::u8 && element_count(packed.shape) == divided_up(elements, 2), Code::shape, subject,
          "{} does not hold {} elements of four bits", to_text(packed), elements);
}

// Checks zero points of four bits. A byte holds two of them, and a row holds `zero_row` of them.
void require_packed_zeros(const NodeTypes &types, const ScaleBlocks &blocks, std::int64_t zero_row) {
  const Shape &scale = types.input(1).shape;
  const bool rows = blocks.inner == 1 && blocks.inner_step == 1 && zero_row >= scale.back() && zero_row % 2 == 0;
  require(rows, Code::shape, types.subject(), "rows of {} zero points for scales of {}", zero_row, to_text(scale));
  require_bytes(types.input(2), element_count({scale.begin(), scale.end() - 1}) * zero_row, types.subject());
}

// Checks the zero points, which are input number `zero`. The scales are the input before it. There must be one zero
// point for each scale.
void require_zeros(const NodeTypes &types, std::size_t zero) {
  if (!types.has(zero)) return;
  const Type &given = types.input(zero), &scale = types.input(zero - 1);
  require(element_count(given.shape) == element_count(scale.shape), Code::shape, types.subject(),
          "zero points of {} for scales of {}", to_text(given.shape), to_text(scale.shape));
  require(is_quantised(given.dtype) || given.dtype == DType::i32 || is_float(given.dtype), Code::type, types.subject(),
          "zero points of {}", name_of(given.dtype));
}

std::vector<Type> infer_dequantize(const NodeTypes &types) {
  const Node &node = types.node;
  const Type &q = types.input(0), scale = float_input(types, 1);
  require(is_quantised(q.dtype) || q.dtype == DType::i32, Code::type, types.subject(),
          "DequantizeLinear does not take {}", name_of(q.dtype));
  require_code(types);
  const Shape shape = shape_of_elements(node, q.shape);
  if (is_packed(node)) require_bytes(q, element_count(shape), types.subject());
  const ScaleBlocks blocks = scale_blocks(node.attributes, shape, scale.shape, types.subject());
  const std::int64_t zero_row = node.attributes.integer("zero_row", 0);
  if (types.has(2) && zero_row > 0)
    require_packed_zeros(types, blocks, zero_row);
  else
    require_zeros(types, 2);
  const std::string to = node.attributes.text("output_dtype", name_of(scale.dtype));
  require(is_float(dtype_named(to)), Code::type, types.subject(), "a result of type {}", to);
  return {{dtype_named(to), shape}};
}

// Returns element i of a tensor with two elements in a byte.
std::int64_t half_byte(const std::vector<std::int64_t> &bytes, std::int64_t i, bool is_signed) {
  const std::int64_t value = bytes.at(static_cast<std::size_t>(i / 2)) >> (i % 2 * 4) & 15;
  return is_signed && value > 7 ? value - 16 : value;
}

// Returns the number that a quantised element stands for before it is scaled: element `integer` of the table that
// `code` names, or `integer` itself if `code` is empty.
double decoded(std::int64_t integer, const std::string &code) {
  if (code == "nf4") return static_cast<double>(arith::nf4(static_cast<int>(integer)));
  if (code == "dynamic") return static_cast<double>(arith::dynamic8(static_cast<int>(integer)));
  return static_cast<double>(integer);
}

// The zero points of a node that dequantises.
class ZeroPoints {
 public:
  ZeroPoints(const Node &node, const Array *given, const ScaleBlocks &blocks)
      : row_(node.attributes.integer("zero_row", 0)),
        blocks_(blocks),
        fallback_(static_cast<double>(node.attributes.integer("zero_point", 0))) {
    if (given != nullptr && row_ > 0) bytes_ = given->integers();
    if (given != nullptr && row_ == 0) values_ = given->doubles();
  }
  double at(std::int64_t element) const {
    if (!bytes_.empty()) {
      const std::int64_t row = element / blocks_.length;  // of scales along the last axis
      return static_cast<double>(half_byte(bytes_, row * row_ + element % blocks_.length / blocks_.block, false));
    }
    return values_.empty() ? fallback_ : values_[static_cast<std::size_t>(blocks_.scale_of(element))];
  }

 private:
  const std::int64_t row_;
  const ScaleBlocks blocks_;
  const double fallback_;
  std::vector<std::int64_t> bytes_;
  std::vector<double> values_;
};

Arrays evaluate_dequantize(const Node &node, Inputs in, Types out) {
  const Shape &shape = out[0].shape;
  const ScaleBlocks blocks = scale_blocks(node.attributes, shape, in[1]->shape(), node.subject());
  const ZeroPoints zeros(node, optional_input(in, 2), blocks);
  const std::vector<double> scale = in[1]->doubles();
  const std::vector<std::int64_t> q = in[0]->integers();
  const bool packed = is_packed(node), is_signed = node.attributes.integer("signed", 0) != 0;
  const std::string code = node.attributes.text("code", "");
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    const std::int64_t integer = packed ? half_byte(q, element, is_signed) : q[i];
    values[i] =
        (decoded(integer, code) - zeros.at(element)) * scale[static_cast<std::size_t>(blocks.scale_of(element))];
  }
  return {array_of(out[0], values)};
}

DType quantised_dtype(const NodeTypes &types) {
  if (types.has(2)) return types.input(2).dtype;
  return dtype_named(types.node.attributes.text("output_dtype", name_of(DType::u8)));
}

std::vector<Type> infer_quantize(const NodeTypes &types) {
  const Type x = float_input(types, 0), scale = float_input(types, 1);
  scale_blocks(types.node.attributes, x.shape, scale.shape, types.subject());
  const DType dtype = quantised_dtype(types);
  require(is_quantised(dtype), Code::type, types.subject(), "QuantizeLinear does not give {}", name_of(dtype));
  require_zeros(types, 2);
  return {{dtype, x.shape}};
}

// Returns value / scale, rounded to an integer, plus `zero`. Unless x is float64, rounds the quotient to float32 first,
// as the kernels do.
double quantised(const Array &x, double value, double scale, double zero) {
  const double quotient = value / scale;
  return std::nearbyint(x.dtype() == DType::f64 ? quotient : static_cast<double>(static_cast<float>(quotient))) + zero;
}

// Calls make(i, quantised value, scale, zero point) for each element of x, and returns the results.
template <typename Make>
Array map_quantised(const Node &node, Inputs in, std::size_t x, const Type &type, Make make) {
  const ScaleBlocks blocks = scale_blocks(node.attributes, in[x]->shape(), in[x + 1]->shape(), node.subject());
  const ZeroPoints zeros(node, optional_input(in, x + 2), blocks);
  const std::vector<double> values = in[x]->doubles(), scale = in[x + 1]->doubles();
  std::vector<double> results(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    const double s = scale[static_cast<std::size_t>(blocks.scale_of(element))], zero = zeros.at(element);
    results[i] = make(i, quantised(*in[x], values[i], s, zero), s, zero);
  }
  return array_of(type, results);
}

double clipped(double q, Bounds bounds) { return q < bounds.low ? bounds.low : q > bounds.high ? bounds.high : q; }

Arrays evaluate_quantize(const Node &node, Inputs in, Types out) {
  const auto whole = static_cast<std::int64_t>(8 * size_of(out[0].dtype));
  const Bounds bounds = integer_bounds(out[0].dtype, node.attributes.integer("bits", whole));
  return {
      map_quantised(node, in, 0, out[0], [&](std::size_t, double q, double, double) { return clipped(q, bounds); })};
}

Bounds integer_bounds(const Node &node) {
  return {static_cast<double>(node.attributes.integer("low", 0)),
          static_cast<double>(node.attributes.integer("high", 255))};
}

std::vector<Type> infer_fake_quantize(const NodeTypes &types) {
  const std::size_t x = types.node.op == "FakeQuantize" ? 0 : 1;  // the gradient has dy before it
  const Type scale = float_input(types, x + 1);
  scale_blocks(types.node.attributes, float_input(types, x).shape, scale.shape, types.subject());
  require_zeros(types, x + 2);
  require(types.input(0) == types.input(x), Code::shape, types.subject(), "a gradient of {} for {}",
          to_text(types.input(0)), to_text(types.input(x)));
  return {types.input(x)};
}

Arrays evaluate_fake_quantize(const Node &node, Inputs in, Types out) {
  const Bounds bounds = integer_bounds(node);
  return {map_quantised(node, in, 0, out[0], [&](std::size_t, double q, double scale, double zero) {
    return (clipped(q, bounds) - zero) * scale;
  })};
}

Arrays evaluate_fake_quantize_grad(const Node &node, Inputs in, Types out) {
  const Bounds bounds = integer_bounds(node);
  const std::vector<double> dy = in[0]->doubles();
  return {map_quantised(node, in, 1, out[0], [&](std::size_t i, double q, double, double) {
    return q >= bounds.low && q <= bounds.high ? dy[i] : 0;
  })};
}

// Passes dy on where the quantised value was not clipped: the straight-through estimator, as in PyTorch's
// fake_quantize.
void differentiate_fake_quantize(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  std::vector<ValueId> inputs = {dy};
  inputs.insert(inputs.end(), node.inputs.begin(), node.inputs.end());
  builder.contribute(node.inputs[0], builder.emit("FakeQuantizeGrad", inputs, node.attributes));
}

}  // namespace

Family quantize_family() {
  return {{.name = "DequantizeLinear", .infer = infer_dequantize, .evaluate = evaluate_dequantize, .optional = {2}},
          {.name = "QuantizeLinear",
           .infer = infer_quantize,
           .evaluate = evaluate_quantize,
           .optional = {2},
           .file_only = true},
          {.name = "FakeQuantize",
           .infer = infer_fake_quantize,
           .evaluate = evaluate_fake_quantize,
           .gradient = differentiate_fake_quantize,
           .optional = {2}},
          {.name = "FakeQuantizeGrad",
           .infer = infer_fake_quantize,
           .evaluate = evaluate_fake_quantize_grad,
           .optional = {3}}};
}

}  // namespace protrain::ops
