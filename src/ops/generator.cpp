// Operators that make values from shapes and numbers. Constant folding removes all of them, except a CumSum of values
// that are not constant.
#include <cmath>
#include <numeric>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

constexpr double kLongestRange = 4294967296.0;  // elements

// Returns the result of the operator Shape: the dims [start, end) of its operand's shape.
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
          "the shape of ConstantOfShape is computed from data; shapes that depend on data are not supported");
  const Shape shape = types.node.attributes.integers("shape");
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

// Infers the result of Range. The operands must be constant, because their values determine the length of the result.
std::vector<Type> infer_range(const NodeTypes &types) {
  const DType dtype = types.input(0).dtype;
  double bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    require(types.input(i).dtype == dtype && element_count(types.input(i).shape) == 1, Code::type, types.subject(),
            "operand {} of Range is {}, not a {} scalar", i, to_text(types.input(i)), name_of(dtype));
    bounds[i] = types.constant(i).stored_double(0);
  }
  const auto [start, limit, step] = bounds;
  require(step != 0 && std::isfinite(start) && std::isfinite(limit) && std::isfinite(step), Code::arg, types.subject(),
          "no range goes from {} to {} in steps of {}", start, limit, step);
  const double length = std::max(0.0, std::ceil((limit - start) / step));
  require(length <= kLongestRange, Code::limit, types.subject(), "a range of {} elements is too long", length);
  return {{dtype, {static_cast<std::int64_t>(length)}}};
}

std::vector<Array> evaluate_range(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  const auto fill = [&]<typename T>(T start, T step) {
    std::vector<T> values(static_cast<std::size_t>(out[0].shape[0]));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = start + static_cast<T>(i) * step;
    return array_of(out[0], values);
  };
  if (is_float(out[0].dtype)) return {fill(in[0]->stored_double(0), in[2]->stored_double(0))};
  return {fill(in[0]->stored_integer(0), in[2]->stored_integer(0))};
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

// Evaluates CumSum: computes cumulative sums along one axis. The stored data are seen as (outer, length, inner).
template <typename T>
Array cumulate(const Node &node, const Array &x, const Type &type) {
  using Total = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;  // integers wrap
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), type.shape.size(), node.name);
  const bool exclusive = node.attributes.integer("exclusive", 0) != 0;
  const bool reverse = node.attributes.integer("reverse", 0) != 0;
  Shape stored = x.stored();
  stored[axis] = type.shape[axis];
  std::vector<T> values = stored_values<T>(x.stored_as(stored));
  const std::int64_t length = stored[axis], inner = row_major_strides(stored)[axis];
  for (std::int64_t line = 0; line * length < static_cast<std::int64_t>(values.size()); ++line) {
    const std::int64_t first = line / inner * length * inner + line % inner;
    Total total{};
    for (std::int64_t i = 0; i < length; ++i) {
      T &value = values[static_cast<std::size_t>(first + (reverse ? length - 1 - i : i) * inner)];
      const Total before = total;
      total += static_cast<Total>(value);
      value = static_cast<T>(exclusive ? before : total);
    }
  }
  return array_of(type, stored, values);
}

std::vector<Array> evaluate_cumsum(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  return {is_float(out[0].dtype) ? cumulate<double>(node, *in[0], out[0])
                                 : cumulate<std::int64_t>(node, *in[0], out[0])};
}

// Differentiates CumSum. The gradient is a cumulative sum of dy in the other direction, because an element contributes
// to the sums after it (with `reverse`, to those before it).
void differentiate_cumsum(GradientBuilder &builder, const Node &node) {
  const graph::ValueId dy = gradient_for(builder, node);
  if (dy == graph::ValueId::none) return;
  Attributes attributes = node.attributes;
  attributes.set("reverse", std::int64_t{node.attributes.integer("reverse", 0) == 0});
  builder.contribute(node.inputs[0], builder.emit("CumSum", {dy}, attributes));
}

std::vector<Type> infer_eye_like(const NodeTypes &types) {
  require(types.input(0).shape.size() == 2, Code::shape, types.subject(), "EyeLike takes a matrix, not {}",
          to_text(types.input(0)));
  const DType dtype = dtype_named(types.node.attributes.text("dtype", ""));
  return {{dtype == DType::none ? types.input(0).dtype : dtype, types.input(0).shape}};
}

std::vector<Array> evaluate_eye_like(const Node &node, std::span<const Array *const>, std::span<const Type> out) {
  const std::int64_t rows = out[0].shape[0], columns = out[0].shape[1];
  const std::int64_t k = std::clamp(node.attributes.integer("k", 0), -rows, columns);
  std::vector<double> values(static_cast<std::size_t>(rows * columns), 0);
  for (std::int64_t i = std::max<std::int64_t>(0, -k); i < rows && i + k < columns; ++i)
    values[static_cast<std::size_t>(i * columns + i + k)] = 1;
  return {array_of(out[0], values)};
}

std::vector<Type> infer_constant(const NodeTypes &types) {
  const Array *value = types.node.attributes.array("value");
  require(value != nullptr, Code::unsupported, types.subject(), "Constant holds no tensor");
  return {value->type()};
}

std::vector<Array> evaluate_constant(const Node &node, std::span<const Array *const>, std::span<const Type>) {
  return {*node.attributes.array("value")};
}

// Evaluates NonZero: x (d0, d1, ...) -> (rank, count), the coordinates of the `count` elements that are not 0.
std::vector<Array> evaluate_non_zero(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  const std::size_t rank = in[0]->shape().size(), found = static_cast<std::size_t>(out[0].shape[1]);
  const std::vector<double> values = in[0]->doubles();
  const Strides strides = row_major_strides(in[0]->shape());
  std::vector<std::int64_t> positions(rank * found);
  std::size_t next = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    for (std::size_t axis = 0; axis < rank; ++axis)
      positions[axis * found + next] = static_cast<std::int64_t>(i) / strides[axis] % in[0]->shape()[axis];
    ++next;
  }
  return {array_of(out[0], positions)};
}

std::vector<Type> infer_non_zero(const NodeTypes &types) {
  const std::vector<double> values = types.constant(0).doubles();
  const auto zeros = std::ranges::count(values, 0.0);
  return {{DType::i64,
           {static_cast<std::int64_t>(types.input(0).shape.size()), static_cast<std::int64_t>(values.size()) - zeros}}};
}

// Infers the result of OneHot: indices (...) -> (..., depth, ...). An element of the result is values[1] where its
// position on the new axis equals the index, else values[0].
std::vector<Type> infer_one_hot(const NodeTypes &types) {
  require(element_count(types.input(1).shape) == 1 && types.input(2).shape == Shape{2}, Code::shape, types.subject(),
          "OneHot takes one depth and two values, not {} and {}", to_text(types.input(1)), to_text(types.input(2)));
  const std::int64_t depth = types.constant(1).stored_integer(0);
  Shape shape = types.input(0).shape;
  const std::size_t axis = resolve_axis(types.node.attributes.integer("axis", -1), shape.size() + 1, types.subject());
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis), depth);
  return {{types.input(2).dtype, shape}};
}

std::vector<Array> evaluate_one_hot(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", -1), out[0].shape.size(), node.name);
  const std::int64_t depth = out[0].shape[axis];
  Shape column(out[0].shape.size() - axis, 1), unsqueezed = in[0]->shape();
  column[0] = depth;
  unsqueezed.insert(unsqueezed.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  std::vector<std::int64_t> classes(static_cast<std::size_t>(depth));
  std::iota(classes.begin(), classes.end(), std::int64_t{0});
  const Array at = Array::from_integers({DType::i64, column}, classes), indices = in[0]->reshaped(unsqueezed);
  const std::array<const Array *, 2> operands = {&indices, &at};
  const std::vector<double> values = in[2]->doubles();
  return {map_elements<double>(out[0], operands, [&](double index, double position) {
    return (index < 0 ? index + static_cast<double>(depth) : index) == position ? values[1] : values[0];
  })};
}

}  // namespace

Family generator_family() {
  return {
      {.name = "Constant", .infer = infer_constant, .evaluate = evaluate_constant, .file_only = true},
      {.name = "NonZero", .infer = infer_non_zero, .evaluate = evaluate_non_zero, .file_only = true},
      {.name = "OneHot", .infer = infer_one_hot, .evaluate = evaluate_one_hot, .file_only = true},
      {.name = "Shape", .infer = infer_shape, .evaluate = evaluate_shape, .file_only = true},
      {.name = "Size", .infer = infer_size, .evaluate = evaluate_size, .file_only = true},
      {.name = "ConstantOfShape",
       .infer = infer_constant_of_shape,
       .evaluate = evaluate_constant_of_shape,
       .absorbed = {{0, "shape"}},
       .file_only = true},
      {.name = "Range", .infer = infer_range, .evaluate = evaluate_range, .file_only = true},
      {.name = "CumSum",
       .infer = infer_cumsum,
       .evaluate = evaluate_cumsum,
       .gradient = differentiate_cumsum,
       .absorbed = {{1, "axis"}}},
      {.name = "EyeLike", .infer = infer_eye_like, .evaluate = evaluate_eye_like, .file_only = true},
  };
}

}  // namespace protrain::ops
