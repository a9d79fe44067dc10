// Operators that move elements: Transpose, Slice, Concat, Split, Pad, Trilu.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/element_walk.h"
#include "ops/evaluate.h"
#include "ops/families.h"
#include "ops/slices.h"

namespace protrain::ops {

namespace {

using graph::ValueId;
using Integers = std::vector<std::int64_t>;

// `from` read at `offset` with `strides` (over its stored data), written dense as `stored`; the output type is `type`.
Array copy_strided(const Array &from, const Type &type, const Shape &stored, std::int64_t offset,
                   const Integers &strides) {
  const std::size_t element = size_of(type.dtype);
  std::vector<std::byte> bytes(byte_count(type.dtype, stored));
  ElementWalk<1> walk(stored, {{strides}});
  for (std::size_t at = 0; at < bytes.size(); at += element) {
    std::memcpy(bytes.data() + at, from.bytes() + static_cast<std::size_t>(offset + walk.offsets[0]) * element,
                element);
    walk.next();
  }
  return Array(type, stored, std::move(bytes));
}

Integers permutation(const Node &node, std::size_t rank) {
  if (node.attributes.has("perm")) return node.attributes.integers("perm");
  Integers perm(rank);
  std::iota(perm.rbegin(), perm.rend(), std::int64_t{0});
  return perm;
}

std::vector<Type> infer_transpose(const NodeTypes &types) {
  const Type &x = types.input(0);
  const Integers perm = permutation(types.node, x.shape.size());
  Integers sorted = perm;
  std::ranges::sort(sorted);
  Integers all(x.shape.size());
  std::iota(all.begin(), all.end(), std::int64_t{0});
  require(sorted == all, Code::shape, types.subject(), "{} is no permutation of the axes of {}", to_text(perm),
          to_text(x.shape));
  Shape shape;
  for (std::int64_t axis : perm) shape.push_back(x.shape[static_cast<std::size_t>(axis)]);
  return {{x.dtype, shape}};
}

std::vector<Array> evaluate_transpose(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Integers own = strides_over(in[0]->stored(), in[0]->stored());
  Shape stored;
  Integers strides;
  for (std::int64_t axis : permutation(node, own.size())) {
    stored.push_back(in[0]->stored()[static_cast<std::size_t>(axis)]);
    strides.push_back(own[static_cast<std::size_t>(axis)]);
  }
  return {copy_strided(*in[0], out[0], stored, 0, strides)};
}

void differentiate_transpose(GradientBuilder &builder, const Node &node) {
  if (!builder.wants(node.inputs[0])) return;
  const Integers perm = permutation(node, builder.type(node.inputs[0]).shape.size());
  Integers inverse(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  builder.contribute(node.inputs[0], builder.emit("Transpose", {dy}, {{"perm", inverse}}));
}

std::vector<Type> infer_slice(const NodeTypes &types) {
  Type out = types.input(0);
  const std::vector<AxisSlice> slices = resolve_slices(types.node, out.shape);
  for (std::size_t i = 0; i < slices.size(); ++i) out.shape[i] = slices[i].count;
  return {out};
}

std::vector<Array> evaluate_slice(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const std::vector<AxisSlice> slices = resolve_slices(node, in[0]->shape());
  Integers strides = strides_over(in[0]->stored(), in[0]->stored());
  Shape stored = out[0].shape;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (strides[i] == 0) stored[i] = std::min<std::int64_t>(stored[i], 1);  // repeated: any slice of it is the same
    offset += slices[i].start * strides[i];
    strides[i] *= slices[i].step;
  }
  if (element_count(stored) == 0) return {Array::filled(out[0], 0)};
  return {copy_strided(*in[0], out[0], stored, offset, strides)};
}

void differentiate_slice(GradientBuilder &builder, const Node &node) {
  if (!builder.wants(node.inputs[0])) return;
  Attributes attributes = node.attributes;
  attributes.set("shape", builder.type(node.inputs[0]).shape);
  builder.contribute(node.inputs[0], builder.emit("SliceGrad", {builder.gradient_of(node.outputs[0])}, attributes));
}

std::vector<Type> infer_slice_gradient(const NodeTypes &types) {
  const Shape shape = types.node.attributes.integers("shape");
  const std::vector<AxisSlice> slices = resolve_slices(types.node, shape);
  Shape expected;
  for (const AxisSlice &slice : slices) expected.push_back(slice.count);
  require(types.input(0).shape == expected, Code::shape, types.subject(), "the slice is {}, its gradient {}",
          to_text(expected), to_text(types.input(0).shape));
  return {{types.input(0).dtype, shape}};
}

std::vector<Array> evaluate_slice_gradient(const Node &node, std::span<const Array *const> in,
                                           std::span<const Type> out) {
  const std::vector<AxisSlice> slices = resolve_slices(node, out[0].shape);
  const std::vector<double> dy = in[0]->doubles();
  std::vector<double> dx(static_cast<std::size_t>(element_count(out[0].shape)), 0.0);
  Integers strides = row_major_strides(out[0].shape);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    offset += slices[i].start * strides[i];
    strides[i] *= slices[i].step;
  }
  ElementWalk<1> walk(in[0]->shape(), {{strides}});
  for (double value : dy) {
    dx[static_cast<std::size_t>(offset + walk.offsets[0])] = value;
    walk.next();
  }
  return {array_of(out[0], dx)};
}

std::size_t axis_of(const NodeTypes &types) {
  return resolve_axis(types.node.attributes.integer("axis", 0), types.input(0).shape.size(), types.subject());
}

std::vector<Type> infer_concat(const NodeTypes &types) {
  Type out = types.input(0);
  const std::size_t axis = axis_of(types);
  for (std::size_t n = 1; n < types.inputs.size(); ++n) {
    const Type &next = types.input(n);
    require(next.dtype == out.dtype && next.shape.size() == out.shape.size(), Code::type, types.subject(),
            "{} and {} cannot be joined", to_text(out), to_text(next));
    for (std::size_t i = 0; i < out.shape.size(); ++i)
      require(i == axis || next.shape[i] == out.shape[i], Code::shape, types.subject(),
              "{} and {} cannot be joined along axis {}", to_text(out), to_text(next), axis);
    out.shape[axis] = element_count({1, out.shape[axis] + next.shape[axis]});
  }
  return {out};
}

std::vector<Array> evaluate_concat(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), out[0].shape.size(), node.name);
  // Axes that every part repeats stay stored once; the joined axis is written out.
  Shape stored = out[0].shape;
  for (std::size_t i = 0; i < stored.size(); ++i)
    if (i != axis && std::ranges::all_of(in, [&](const Array *a) { return a->stored()[i] == 1; })) stored[i] = 1;
  const std::size_t element = size_of(out[0].dtype);
  std::vector<std::byte> bytes(byte_count(out[0].dtype, stored));
  const Integers strides = row_major_strides(stored);
  std::int64_t offset = 0;
  for (const Array *part : in) {
    Shape piece = stored;
    piece[axis] = part->shape()[axis];
    ElementWalk<2> walk(piece, {strides_over(part->stored(), piece), strides});
    for (std::int64_t n = element_count(piece); n > 0; --n) {
      std::memcpy(bytes.data() + static_cast<std::size_t>(offset + walk.offsets[1]) * element,
                  part->bytes() + static_cast<std::size_t>(walk.offsets[0]) * element, element);
      walk.next();
    }
    offset += piece[axis] * strides[axis];
  }
  return {Array(out[0], stored, std::move(bytes))};
}

Attributes one_slice(std::size_t axis, std::int64_t start, std::int64_t end) {
  return {{"starts", Integers{start}}, {"ends", Integers{end}}, {"axes", Integers{static_cast<std::int64_t>(axis)}}};
}

void differentiate_concat(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), builder.type(dy).shape.size(), node.name);
  std::int64_t start = 0;
  for (ValueId in : node.inputs) {
    const std::int64_t end = start + builder.type(in).shape[axis];
    if (builder.wants(in)) builder.contribute(in, builder.emit("Slice", {dy}, one_slice(axis, start, end)));
    start = end;
  }
}

// Sizes along the axis: the `split` attribute, or equal pieces for `num_outputs` or the node's outputs.
Integers split_sizes(const Node &node, std::int64_t length) {
  if (node.attributes.has("split")) return node.attributes.integers("split");
  const std::int64_t pieces =
      std::max<std::int64_t>(1, node.attributes.integer("num_outputs", static_cast<std::int64_t>(node.outputs.size())));
  const std::int64_t each = (length + pieces - 1) / pieces;
  Integers sizes(static_cast<std::size_t>(pieces), each);
  sizes.back() = length - each * (pieces - 1);
  return sizes;
}

std::vector<Type> infer_split(const NodeTypes &types) {
  const Type &x = types.input(0);
  const std::size_t axis = axis_of(types);
  const Integers sizes = split_sizes(types.node, x.shape[axis]);
  require(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == x.shape[axis] &&
              std::ranges::all_of(sizes, [](std::int64_t s) { return s >= 0; }),
          Code::shape, types.subject(), "pieces {} do not make up axis {} of {}", to_text(sizes), axis,
          to_text(x.shape));
  std::vector<Type> out;
  for (std::int64_t size : sizes) {
    out.push_back(x);
    out.back().shape[axis] = size;
  }
  return out;
}

std::vector<Array> evaluate_split(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), in[0]->shape().size(), node.name);
  std::vector<Array> pieces;
  std::int64_t start = 0;
  for (const Type &type : out) {
    Node slice{.op = "Slice", .name = node.name, .attributes = one_slice(axis, start, start + type.shape[axis])};
    pieces.push_back(evaluate_slice(slice, in, {&type, 1})[0]);
    start += type.shape[axis];
  }
  return pieces;
}

void differentiate_split(GradientBuilder &builder, const Node &node) {
  if (!builder.wants(node.inputs[0])) return;
  std::vector<ValueId> parts;
  for (ValueId out : node.outputs) {
    const ValueId dy = builder.gradient_of(out);
    parts.push_back(dy != ValueId::none ? dy : builder.constant(builder.type(out), 0));
  }
  const Attributes attributes = {{"axis", node.attributes.integer("axis", 0)}};
  builder.contribute(node.inputs[0], builder.emit("Concat", parts, attributes));
}

// Pieces before and after each axis, from ONNX's list of all begins, then all ends.
std::pair<Integers, Integers> pads_of(const Node &node, std::size_t rank) {
  const Integers pads = node.attributes.integers("pads");
  Integers axes = node.attributes.integers("axes");
  if (!node.attributes.has("axes")) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), std::int64_t{0});
  }
  require(pads.size() == 2 * axes.size(), Code::shape, node.name, "{} pads for {} axes", pads.size(), axes.size());
  Integers before(rank, 0), after(rank, 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = resolve_axis(axes[i], rank, node.name);
    before[axis] = pads[i];
    after[axis] = pads[axes.size() + i];
  }
  return {before, after};
}

std::vector<Type> infer_pad(const NodeTypes &types) {
  Type out = types.input(0);
  require(types.node.attributes.text("mode", "constant") == "constant", Code::unsupported, types.subject(),
          "Pad with mode {} is not supported, only constant", types.node.attributes.text("mode", ""));
  const auto [before, after] = pads_of(types.node, out.shape.size());
  for (std::size_t i = 0; i < out.shape.size(); ++i) {
    require(before[i] >= 0 && after[i] >= 0, Code::unsupported, types.subject(), "negative pads are not supported");
    out.shape[i] = static_cast<std::int64_t>(
        checked_add(checked_add(static_cast<std::uint64_t>(out.shape[i]), static_cast<std::uint64_t>(before[i])),
                    static_cast<std::uint64_t>(after[i])));
  }
  element_count(out.shape);
  return {out};
}

std::vector<Array> evaluate_pad(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const auto [before, after] = pads_of(node, out[0].shape.size());
  std::vector<double> y(static_cast<std::size_t>(element_count(out[0].shape)), node.attributes.real("value", 0));
  const Integers strides = row_major_strides(out[0].shape);
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < strides.size(); ++i) offset += before[i] * strides[i];
  ElementWalk<1> walk(in[0]->shape(), {{strides}});
  for (double value : in[0]->doubles()) {
    y[static_cast<std::size_t>(offset + walk.offsets[0])] = value;
    walk.next();
  }
  return {array_of(out[0], y)};
}

void differentiate_pad(GradientBuilder &builder, const Node &node) {
  if (!builder.wants(node.inputs[0])) return;
  const Shape &shape = builder.type(node.inputs[0]).shape;
  const auto [before, after] = pads_of(node, shape.size());
  Integers ends = before, axes(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) ends[i] += shape[i];
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  builder.contribute(node.inputs[0], builder.emit("Slice", {dy}, {{"starts", before}, {"ends", ends}, {"axes", axes}}));
}

std::vector<Type> infer_trilu(const NodeTypes &types) {
  require(types.input(0).shape.size() >= 2, Code::shape, types.subject(), "Trilu takes matrices, not {}",
          to_text(types.input(0)));
  return {types.input(0)};
}

std::vector<Array> evaluate_trilu(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const bool upper = node.attributes.integer("upper", 1) != 0;
  const std::int64_t k = node.attributes.integer("k", 0);
  const std::size_t rank = out[0].shape.size();
  Shape stored = in[0]->stored();
  stored[rank - 2] = out[0].shape[rank - 2];
  stored[rank - 1] = out[0].shape[rank - 1];
  const std::vector<double> x = stored_values<double>(*in[0]);
  std::vector<double> y(static_cast<std::size_t>(element_count(stored)));
  ElementWalk<1> walk(stored, {strides_over(in[0]->stored(), stored)});
  for (double &value : y) {
    const std::int64_t diagonal = walk.position()[rank - 1] - walk.position()[rank - 2];
    value = (upper ? diagonal >= k : diagonal <= k) ? x[static_cast<std::size_t>(walk.offsets[0])] : 0;
    walk.next();
  }
  return {array_of(out[0], stored, y)};
}

void differentiate_trilu(GradientBuilder &builder, const Node &node) {
  if (!builder.wants(node.inputs[0])) return;
  builder.contribute(node.inputs[0], builder.emit("Trilu", {builder.gradient_of(node.outputs[0])}, node.attributes));
}

// A sequence of equal pieces is typed as one of them; canonicalization turns it and its readers into Split.
std::vector<Type> infer_split_to_sequence(const NodeTypes &types) {
  Type out = types.input(0);
  const std::size_t axis = axis_of(types);
  const Integers sizes = types.node.attributes.integers("split");
  out.shape[axis] = sizes.empty() ? 1 : sizes[0];
  return {out};
}

std::vector<Type> infer_sequence_at(const NodeTypes &types) { return {types.input(0)}; }

}  // namespace

Family movement_family() {
  return {
      {.name = "Transpose",
       .infer = infer_transpose,
       .evaluate = evaluate_transpose,
       .gradient = differentiate_transpose},
      {.name = "Slice",
       .infer = infer_slice,
       .evaluate = evaluate_slice,
       .gradient = differentiate_slice,
       .absorbed = {{1, "starts"}, {2, "ends"}, {3, "axes"}, {4, "steps"}}},
      {.name = "SliceGrad", .infer = infer_slice_gradient, .evaluate = evaluate_slice_gradient},
      {.name = "Concat", .infer = infer_concat, .evaluate = evaluate_concat, .gradient = differentiate_concat},
      {.name = "Split",
       .infer = infer_split,
       .evaluate = evaluate_split,
       .gradient = differentiate_split,
       .absorbed = {{1, "split"}}},
      {.name = "Pad",
       .infer = infer_pad,
       .evaluate = evaluate_pad,
       .gradient = differentiate_pad,
       .absorbed = {{1, "pads"}, {2, "value"}, {3, "axes"}}},
      {.name = "Trilu",
       .infer = infer_trilu,
       .evaluate = evaluate_trilu,
       .gradient = differentiate_trilu,
       .absorbed = {{1, "k"}}},
      {.name = "SplitToSequence", .infer = infer_split_to_sequence, .absorbed = {{1, "split"}}},
      {.name = "SequenceAt", .infer = infer_sequence_at},
  };
}

}  // namespace protrain::ops
