// Gather, GatherElements and GatherND, which read elements by index, and the gradients of the first two, which add
// elements by index. Also ScatterElements and ScatterND, which write elements by index.
//
// A Gather may have the attribute `padding_idx`, which ONNX does not know: the row of the table with this index gets no
// gradient.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/text.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

void require_indices(const Type &type, const std::string &subject) {
  require(type.dtype == DType::i64 || type.dtype == DType::i32, Code::type, subject,
          "indices are {}, not int64 or int32", name_of(type.dtype));
}

std::size_t axis_of(const Node &node, const Shape &shape) {
  return resolve_axis(node.attributes.integer("axis", 0), shape.size(), node.name);
}

std::int64_t resolve_index(std::int64_t index, std::int64_t dim, const Node &node) {
  require(index >= -dim && index < dim, Code::arg, node.name, "index {} is outside 0..{}", index, dim - 1);
  return index < 0 ? index + dim : index;
}

// A shape split at an axis: `outer` elements in the axes before, the axis's `length`, `inner` elements in those after.
struct AxisSplit {
  AxisSplit(const Shape &shape, std::size_t axis)
      : outer(element_count(Shape(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis)))),
        length(shape[axis]),
        inner(element_count(Shape(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end()))) {}
  std::int64_t outer, length, inner;
};

Shape gathered_shape(const Shape &table, std::size_t axis, const Shape &indices) {
  Shape shape(table.begin(), table.begin() + static_cast<std::ptrdiff_t>(axis));
  shape.insert(shape.end(), indices.begin(), indices.end());
  shape.insert(shape.end(), table.begin() + static_cast<std::ptrdiff_t>(axis) + 1, table.end());
  return shape;
}

std::vector<Type> infer_gather(const NodeTypes &types) {
  require_indices(types.input(1), types.subject());
  const Type &table = types.input(0);
  const std::size_t axis = axis_of(types.node, table.shape);
  // Constant indices, such as the positions of a sequence, are checked here, before any step.
  const Array *places = types.constants.size() > 1 ? types.constants[1] : nullptr;
  const std::int64_t length = table.shape[axis];
  for (std::int64_t i = 0; places != nullptr && i < places->stored_count(); ++i) {
    const std::int64_t place = places->stored_integer(i);
    require(place >= -length && place < length, Code::arg, types.subject(),
            "index {} is outside 0..{} of its table {}; if the indices are positions, a dimension such as the sequence "
            "is longer than the table",
            place, length - 1, to_text(table));
  }
  return {{table.dtype, gathered_shape(table.shape, axis, types.input(1).shape)}};
}

// Evaluates Gather on the stored data. A table (outer, length, inner) that is read at n indices gives (outer, n,
// inner). If the table stores one element along the axis, all indices read the same values, so one index is enough.
std::vector<Array> evaluate_gather(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Array &table = *in[0];
  const std::size_t axis = axis_of(node, table.shape());
  std::vector<std::int64_t> indices = stored_values<std::int64_t>(*in[1]);
  for (std::int64_t &index : indices) index = resolve_index(index, table.shape()[axis], node);
  Shape stored_indices = in[1]->stored();
  if (table.stored()[axis] == 1 && !indices.empty()) {
    indices.assign(1, 0);
    stored_indices.assign(stored_indices.size(), 1);
  }
  const AxisSplit split(table.stored(), axis);
  const std::size_t row = static_cast<std::size_t>(split.inner) * size_of(table.dtype());
  const Shape stored = gathered_shape(table.stored(), axis, stored_indices);
  std::vector<std::byte> bytes = room_for(table.dtype(), stored);
  std::byte *to = bytes.data();
  for (std::int64_t outer = 0; outer < split.outer && !bytes.empty(); ++outer)
    for (std::int64_t index : indices) {
      std::memcpy(to, table.bytes() + static_cast<std::size_t>(outer * split.length + index) * row, row);
      to += row;
    }
  return {make_array(out[0], stored, std::move(bytes))};
}

// Returns `dy` with zeros where the node picked row `padding` of its table.
ValueId without_padding(GradientBuilder &builder, const Node &node, ValueId dy, std::int64_t padding) {
  const ValueId indices = node.inputs[1];
  const DType type = builder.type(indices).dtype;
  Shape shape = builder.type(indices).shape;
  const ValueId row = builder.constant({type, {}}, static_cast<double>(padding));
  ValueId picked = builder.emit("Equal", {indices, row});

  const Shape &table = builder.type(node.inputs[0]).shape;
  shape.resize(shape.size() + table.size() - axis_of(node, table) - 1, 1);  // broadcasts along the axes behind
  picked = builder.emit("Reshape", {picked}, {{"shape", shape}});
  return builder.emit("Where", {picked, builder.constant({builder.type(dy).dtype, {}}, 0), dy});
}

void differentiate_gather(GradientBuilder &builder, const Node &node) {
  ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  if (node.attributes.has("padding_idx"))
    dy = without_padding(builder, node, dy, node.attributes.integer("padding_idx", 0));
  const Attributes attributes = {{"axis", node.attributes.integer("axis", 0)},
                                 {"shape", builder.type(node.inputs[0]).shape}};
  builder.contribute(node.inputs[0], builder.emit(node.op + "Grad", {dy, node.inputs[1]}, attributes));
}

std::vector<Type> infer_gather_gradient(const NodeTypes &types) {
  const Shape shape = types.node.attributes.integers("shape");
  const Shape expected = gathered_shape(shape, axis_of(types.node, shape), types.input(1).shape);
  require(types.input(0).shape == expected, Code::shape, types.subject(), "gradient {} of a result of shape {}",
          to_text(types.input(0).shape), to_text(expected));
  return {{types.input(0).dtype, shape}};
}

std::vector<Array> evaluate_gather_gradient(const Node &node, std::span<const Array *const> in,
                                            std::span<const Type> out) {
  const AxisSplit split(out[0].shape, axis_of(node, out[0].shape));
  const std::vector<std::int64_t> indices = in[1]->integers();
  const std::vector<double> dy = in[0]->doubles();
  std::vector<double> dx(static_cast<std::size_t>(element_count(out[0].shape)), 0.0);
  std::size_t from = 0;
  for (std::int64_t outer = 0; outer < split.outer; ++outer)
    for (std::int64_t index : indices) {
      const std::int64_t at = (outer * split.length + resolve_index(index, split.length, node)) * split.inner;
      for (std::int64_t i = 0; i < split.inner; ++i) dx[static_cast<std::size_t>(at + i)] += dy[from++];
    }
  return {array_of(out[0], dx)};
}

// Differentiates GatherGrad and GatherElementsGrad, which add elements by index. The gradient of such a node reads at
// the same indices, so it is a Gather or a GatherElements.
void differentiate_gather_gradient(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  const std::string read = node.op.substr(0, node.op.size() - std::string_view("Grad").size());
  builder.contribute(node.inputs[0],
                     builder.emit(read, {dy, node.inputs[1]}, {{"axis", node.attributes.integer("axis", 0)}}));
}

std::vector<Type> infer_gather_elements(const NodeTypes &types) {
  require_indices(types.input(1), types.subject());
  const Shape &x = types.input(0).shape, &indices = types.input(1).shape;
  const std::size_t axis = axis_of(types.node, x);
  bool fits = x.size() == indices.size();
  for (std::size_t i = 0; fits && i < x.size(); ++i) fits = i == axis || indices[i] <= x[i];
  require(fits, Code::shape, types.subject(), "indices {} do not fit {}", to_text(indices), to_text(x));
  return {{types.input(0).dtype, indices}};
}

// Returns for each index the offset of the element that it points to in an array of `shape`.
std::vector<std::size_t> element_targets(const Node &node, const Array &indices, const Shape &shape) {
  const std::size_t axis = axis_of(node, shape);
  std::vector<std::int64_t> strides = row_major_strides(shape);
  const std::int64_t stride = strides[axis];
  strides[axis] = 0;
  std::vector<std::size_t> targets;
  const std::vector<std::int64_t> values = indices.integers();
  Runs<1>{indices.shape(), {strides}}.for_each([&](std::int64_t count, const auto &offsets, const auto &steps) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = resolve_index(values[targets.size()], shape[axis], node);
      targets.push_back(static_cast<std::size_t>(offsets[0] + i * steps[0] + index * stride));
    }
  });
  return targets;
}

std::vector<Array> evaluate_gather_elements(const Node &node, std::span<const Array *const> in,
                                            std::span<const Type> out) {
  const Array x = in[0]->densified();
  const std::size_t element = size_of(x.dtype());
  std::vector<std::byte> bytes = room_for(out[0].dtype, out[0].shape);
  std::byte *to = bytes.data();
  for (std::size_t target : element_targets(node, *in[1], x.shape())) {
    std::memcpy(to, x.bytes() + target * element, element);
    to += element;
  }
  return {make_array(out[0], out[0].shape, std::move(bytes))};
}

std::vector<Type> infer_gather_elements_gradient(const NodeTypes &types) {
  require(types.input(0).shape == types.input(1).shape, Code::shape, types.subject(), "gradient {} for indices {}",
          to_text(types.input(0).shape), to_text(types.input(1).shape));
  return {{types.input(0).dtype, types.node.attributes.integers("shape")}};
}

std::vector<Array> evaluate_gather_elements_gradient(const Node &node, std::span<const Array *const> in,
                                                     std::span<const Type> out) {
  const std::vector<double> dy = in[0]->doubles();
  std::vector<double> dx(static_cast<std::size_t>(element_count(out[0].shape)), 0.0);
  const std::vector<std::size_t> targets = element_targets(node, *in[1], out[0].shape);
  for (std::size_t i = 0; i < targets.size(); ++i) dx[targets[i]] += dy[i];
  return {array_of(out[0], dx)};
}

std::size_t batch_axes_of(const Node &node) {
  const std::int64_t batch = node.attributes.integer("batch_dims", 0);
  require(batch >= 0, Code::graph, node.name, "GatherND has batch_dims {}", batch);
  return static_cast<std::size_t>(batch);
}

// Infers the result of GatherND: x (batch..., addressed..., rest...), indices (batch..., places..., depth) ->
// (batch..., places..., rest...). `depth` is the number of addressed axes.
std::vector<Type> infer_gather_nd(const NodeTypes &types) {
  require_indices(types.input(1), types.subject());
  const Shape &x = types.input(0).shape, &indices = types.input(1).shape;
  const std::size_t batch = batch_axes_of(types.node);
  const bool fits = indices.size() > batch && x.size() > batch && indices.back() >= 1 &&
                    indices.back() <= static_cast<std::int64_t>(x.size() - batch) &&
                    std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(batch), indices.begin());
  require(fits, Code::shape, types.subject(), "indices {} do not address {}", to_text(indices), to_text(x));
  Shape shape(indices.begin(), indices.end() - 1);
  shape.insert(shape.end(), x.begin() + static_cast<std::ptrdiff_t>(batch) + indices.back(), x.end());
  return {{types.input(0).dtype, shape}};
}

// Evaluates GatherND without expanding the axes along which an array stores a single element. Along a batch axis, the
// result stores a single element if both x and the indices do so. Along any other axis of the indices, the result
// stores a single element if the indices do so. The axes of x after the addressed ones keep their stored sizes.
std::vector<Array> evaluate_gather_nd(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Array &x = *in[0];
  const std::size_t batch = batch_axes_of(node), depth = static_cast<std::size_t>(in[1]->shape().back());
  Shape places = in[1]->stored();
  places.back() = in[1]->shape().back();
  const Array indices = in[1]->stored_as(places);
  Strides of_indices = indices.strides(), of_x(places.size(), 0);
  const Strides strides = x.strides();
  for (std::size_t i = 0; i < batch; ++i) {
    places[i] = std::max(places[i], x.stored()[i]);
    of_x[i] = strides[i];
  }
  places.pop_back();
  of_indices.pop_back();
  of_x.pop_back();
  const Shape rest(x.stored().begin() + static_cast<std::ptrdiff_t>(batch + depth), x.stored().end());
  Shape stored = places;
  stored.insert(stored.end(), rest.begin(), rest.end());
  std::vector<std::byte> bytes = room_for(x.dtype(), stored);
  const std::size_t row = byte_count(x.dtype(), rest), element = size_of(x.dtype());
  const std::vector<std::int64_t> values = stored_values<std::int64_t>(indices);
  std::byte *to = bytes.data();
  Runs<2>{places, {of_indices, of_x}}.for_each([&](std::int64_t count, const auto &offsets, const auto &steps) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t *index = values.data() + offsets[0] + i * steps[0];
      std::int64_t at = offsets[1] + i * steps[1];
      for (std::size_t d = 0; d < depth; ++d)
        at += resolve_index(index[d], x.shape()[batch + d], node) * strides[batch + d];
      if (row > 0) std::memcpy(to, x.bytes() + static_cast<std::size_t>(at) * element, row);
      to += row;
    }
  });
  return {make_array(out[0], stored, std::move(bytes))};
}

// Infers the result of ScatterElements, which has the type of the data. Requires one update for each index.
std::vector<Type> infer_scatter_elements(const NodeTypes &types) {
  const Type expected = infer_gather_elements(types)[0], &updates = types.input(2);
  require(updates == expected, Code::shape, types.subject(), "updates are {}; expected {}", to_text(updates),
          to_text(expected));
  return same_as_input(types);
}

// Infers the result of ScatterND. Indices (places..., depth) address the first `depth` axes of the data, and updates
// have the shape (places..., rest...).
std::vector<Type> infer_scatter_nd(const NodeTypes &types) {
  require_indices(types.input(1), types.subject());
  const Type &data = types.input(0), &updates = types.input(2);
  const Shape &indices = types.input(1).shape;
  require(!indices.empty() && indices.back() >= 1 && indices.back() <= static_cast<std::int64_t>(data.shape.size()),
          Code::shape, types.subject(), "indices {} do not address {}", to_text(indices), to_text(data.shape));
  Type expected = {data.dtype, {indices.begin(), indices.end() - 1}};
  expected.shape.insert(expected.shape.end(), data.shape.begin() + indices.back(), data.shape.end());
  require(updates == expected, Code::shape, types.subject(), "updates are {}; expected {}", to_text(updates),
          to_text(expected));
  return same_as_input(types);
}

// Returns, for each element of ScatterND's updates, the offset of the data's element to which it is written.
std::vector<std::size_t> row_targets(const Node &node, const Array &indices, const Shape &shape) {
  const auto depth = static_cast<std::size_t>(indices.shape().back());
  const Strides strides = row_major_strides(shape);
  const std::int64_t row = element_count({shape.begin() + static_cast<std::ptrdiff_t>(depth), shape.end()});
  const std::vector<std::int64_t> values = indices.integers();
  std::vector<std::size_t> targets;
  for (std::size_t from = 0; from < values.size(); from += depth) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < depth; ++d) at += resolve_index(values[from + d], shape[d], node) * strides[d];
    for (std::int64_t i = 0; i < row; ++i) targets.push_back(static_cast<std::size_t>(at + i));
  }
  return targets;
}

template <typename T>
using Combine = T (*)(T, T);  // of the value that is there and an update

// Returns the function that combines an element with an update. Integers wrap on overflow, as in two's complement.
template <typename T>
Combine<T> combination_of(const Node &node) {
  using Wrapping = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;
  const std::string reduction = node.attributes.text("reduction", "none");
  if (reduction == "none") return [](T, T update) { return update; };
  if (reduction == "add") return [](T a, T b) { return static_cast<T>(Wrapping(a) + Wrapping(b)); };
  if (reduction == "mul") return [](T a, T b) { return static_cast<T>(Wrapping(a) * Wrapping(b)); };
  if (reduction == "max") return [](T a, T b) { return std::max(a, b); };
  if (reduction == "min") return [](T a, T b) { return std::min(a, b); };
  fail(Code::graph, node.subject(), "reduction is \"{}\"; expected none, add, mul, max or min", printable(reduction));
}

template <typename T>  // double or std::int64_t
Array written(const Node &node, Inputs in, const Type &type, const std::vector<std::size_t> &targets) {
  const Combine<T> combine = combination_of<T>(node);
  std::vector<T> values = stored_values<T>(in[0]->densified());
  const std::vector<T> updates = stored_values<T>(in[2]->densified());
  for (std::size_t i = 0; i < targets.size(); ++i) values[targets[i]] = combine(values[targets[i]], updates[i]);
  return array_of(type, values);
}

Arrays evaluate_scatter(const Node &node, Inputs in, Types out) {
  const auto targets_of = node.op == "ScatterND" ? row_targets : element_targets;
  const std::vector<std::size_t> targets = targets_of(node, *in[1], out[0].shape);
  return {is_float(out[0].dtype) ? written<double>(node, in, out[0], targets)
                                 : written<std::int64_t>(node, in, out[0], targets)};
}

}  // namespace

Family gather_family() {
  return {
      {.name = "Gather",
       .infer = infer_gather,
       .evaluate = evaluate_gather,
       .gradient = differentiate_gather,
       .checks_values = true},
      {.name = "GatherGrad",
       .infer = infer_gather_gradient,
       .evaluate = evaluate_gather_gradient,
       .gradient = differentiate_gather_gradient,
       .checks_values = true},
      {.name = "GatherElements",
       .infer = infer_gather_elements,
       .evaluate = evaluate_gather_elements,
       .gradient = differentiate_gather,
       .checks_values = true},
      {.name = "GatherElementsGrad",
       .infer = infer_gather_elements_gradient,
       .evaluate = evaluate_gather_elements_gradient,
       .gradient = differentiate_gather_gradient,
       .checks_values = true},
      {.name = "CenterCropPad", .infer = infer_rewritten, .absorbed = {{1, "shape"}}, .file_only = true},
      {.name = "Compress", .infer = infer_rewritten, .file_only = true},
      {.name = "ReverseSequence", .infer = infer_rewritten, .file_only = true},
      {.name = "GatherND", .infer = infer_gather_nd, .evaluate = evaluate_gather_nd, .file_only = true},
      {.name = "ScatterElements", .infer = infer_scatter_elements, .evaluate = evaluate_scatter, .file_only = true},
      {.name = "ScatterND", .infer = infer_scatter_nd, .evaluate = evaluate_scatter, .file_only = true},
  };
}

}  // namespace protrain::ops
