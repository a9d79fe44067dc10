// Operators that make values out of shapes and numbers. They exist to be folded.
#include <cmath>

#include "ops/element_walk.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

constexpr std::int64_t kLongestRange = 1ll << 32;

// Shape's part [start, end) of the axes.
Shape shape_part(const Node &node, const Shape &shape) {
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto bound = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const std::int64_t start = bound(node.attributes.integer("start", 0)),
                     end = bound(node.attributes.integer("end", rank));
  return start < end ? Shape(shape.begin() + start, shape.begin() + end) : Shape();
}

std::vector<Type> infer_shape(const NodeTypes &types) {
  return {{DType::i64, {static_cast<std::int64_t>(shape_part(types.node, types.input(0).shape).size())}}};
}

std::vector<Type> infer_size(const NodeTypes &) { return {{DType::i64, {}}}; }

std::vector<Type> infer_constant_of_shape(const NodeTypes &types) {
  const Array *value = types.node.attributes.array("value");
  require(types.node.attributes.has("shape"), Code::unsupported, types.subject(),
          "the shape is not known once the dims are bound");
  const Shape shape = types.node.attributes.integers("shape");
  element_count(shape);
  return {{value != nullptr ? value->dtype() : DType::f32, shape}};
}

std::vector<Array> evaluate_constant_of_shape(const Node &node, std::span<const Array *const>,
                                              std::span<const Type> out) {
  const Array *value = node.attributes.array("value");
  if (value == nullptr) return {Array::filled(out[0], 0)};
  require(element_count(value->shape()) == 1, Code::graph, node.name, "the value of ConstantOfShape has {} elements",
          element_count(value->shape()));
  return {value->reshaped({}).expanded(out[0].shape)};
}

// Range's length depends on its operands' values: inference happens in fold, where evaluate makes its own type.
std::vector<Type> infer_range(const NodeTypes &types) {
  require(types.input(0).shape.empty() && types.input(1).shape.empty() && types.input(2).shape.empty(), Code::shape,
          types.subject(), "Range takes scalars");
  return {{types.input(0).dtype, {}}};
}

std::vector<Array> evaluate_range(const Node &node, std::span<const Array *const> in, std::span<const Type>) {
  const DType dtype = in[0]->dtype();
  const double start = in[0]->stored_double(0), limit = in[1]->stored_double(0), delta = in[2]->stored_double(0);
  require(delta != 0 && std::isfinite(start) && std::isfinite(limit) && std::isfinite(delta), Code::arg, node.name,
          "no range goes from {} to {} in steps of {}", start, limit, delta);
  const double length = std::max(0.0, std::ceil((limit - start) / delta));
  require(length <= static_cast<double>(kLongestRange), Code::limit, node.name, "a range of {} elements is too long",
          length);
  const Type type{dtype, {static_cast<std::int64_t>(length)}};
  if (is_float(dtype)) {
    std::vector<double> values(static_cast<std::size_t>(length));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = start + static_cast<double>(i) * delta;
    return {Array::from_doubles(type, values)};
  }
  std::vector<std::int64_t> values(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = in[0]->stored_integer(0) + static_cast<std::int64_t>(i) * in[2]->stored_integer(0);
  return {Array::from_integers(type, values)};
}

std::vector<Array> evaluate_shape(const Node &node, std::span<const Array *const> in, std::span<const Type>) {
  return {Array::integers(shape_part(node, in[0]->shape()))};
}

std::vector<Array> evaluate_size(const Node &, std::span<const Array *const> in, std::span<const Type>) {
  return {Array::from_integers({DType::i64, {}}, {element_count(in[0]->shape())})};
}

std::vector<Type> infer_cumsum(const NodeTypes &types) {
  resolve_axis(types.node.attributes.integer("axis", 0), types.input(0).shape.size(), types.subject());
  return {types.input(0)};
}

// Sums along one axis of (outer, length, inner).
template <typename T>
Array cumulate(const Node &node, const Array &x, const Type &type) {
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), type.shape.size(), node.name);
  const bool exclusive = node.attributes.integer("exclusive", 0) != 0,
             reverse = node.attributes.integer("reverse", 0) != 0;
  Shape stored = x.stored();
  stored[axis] = type.shape[axis];
  std::vector<std::int64_t> strides = row_major_strides(stored);
  const std::int64_t length = stored[axis], stride = strides[axis];
  const std::vector<T> values = stored_values<T>(x);
  std::vector<T> sums(static_cast<std::size_t>(element_count(stored)));
  Shape lanes = stored;
  lanes[axis] = std::min<std::int64_t>(1, length);
  const std::vector<std::int64_t> from = strides_over(x.stored(), stored);
  ElementWalk<2> walk(lanes, {from, strides});
  for (std::int64_t lane = element_count(lanes); lane > 0; --lane) {
    T total{};
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t at = reverse ? length - 1 - i : i;
      const T next = total + values[static_cast<std::size_t>(walk.offsets[0] + at * from[axis])];
      sums[static_cast<std::size_t>(walk.offsets[1] + at * stride)] = exclusive ? total : next;
      total = next;
    }
    walk.next();
  }
  return array_of(type, stored, sums);
}

std::vector<Array> evaluate_cumsum(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  return {is_float(out[0].dtype) ? cumulate<double>(node, *in[0], out[0])
                                 : cumulate<std::int64_t>(node, *in[0], out[0])};
}

std::vector<Type> infer_eye_like(const NodeTypes &types) {
  require(types.input(0).shape.size() == 2, Code::shape, types.subject(), "EyeLike takes a matrix, not {}",
          to_text(types.input(0)));
  const DType dtype = dtype_named(types.node.attributes.text("dtype", ""));
  return {{dtype == DType::none ? types.input(0).dtype : dtype, types.input(0).shape}};
}

std::vector<Array> evaluate_eye_like(const Node &node, std::span<const Array *const>, std::span<const Type> out) {
  const std::int64_t rows = out[0].shape[0], columns = out[0].shape[1], k = node.attributes.integer("k", 0);
  std::vector<double> values(static_cast<std::size_t>(rows * columns), 0);
  for (std::int64_t i = std::max<std::int64_t>(0, -k); i < rows && i + k < columns; ++i)
    values[static_cast<std::size_t>(i * columns + i + k)] = 1;
  return {array_of(out[0], values)};
}

}  // namespace

Family generator_family() {
  return {
      {.name = "Shape", .infer = infer_shape, .evaluate = evaluate_shape},
      {.name = "Size", .infer = infer_size, .evaluate = evaluate_size},
      {.name = "ConstantOfShape",
       .infer = infer_constant_of_shape,
       .evaluate = evaluate_constant_of_shape,
       .absorbed = {{0, "shape"}}},
      {.name = "Range", .infer = infer_range, .evaluate = evaluate_range},
      {.name = "CumSum", .infer = infer_cumsum, .evaluate = evaluate_cumsum, .absorbed = {{1, "axis"}}},
      {.name = "EyeLike", .infer = infer_eye_like, .evaluate = evaluate_eye_like},
  };
}

}  // namespace protrain::ops
