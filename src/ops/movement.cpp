// Operators that move elements: Transpose, Slice and SliceGrad, Concat, Split, Pad, Trilu, DepthToSpace, SpaceToDepth,
// SplitToSequence, SequenceAt.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/evaluate.h"
#include "ops/families.h"
#include "ops/slices.h"

namespace protrain::ops {

namespace {

using graph::ValueId;
using Integers = std::vector<std::int64_t>;

// Copies elements of `from` into an array with stored shape `stored`. In the stored data of `from`, the first element
// to copy lies at `offset`, and `strides` are the distances between these elements along each axis.
Array read_at(const Array &from, const Type &type, const Shape &stored, std::int64_t offset, const Strides &strides) {
  const auto element = static_cast<std::int64_t>(size_of(type.dtype));
  std::vector<std::byte> bytes = room_for(type.dtype, stored);
  if (!bytes.empty())
    copy_elements(stored, size_of(type.dtype), {from.bytes() + offset * element, strides},
                  {bytes.data(), row_major_strides(stored)});
  return make_array(type, stored, std::move(bytes));
}

// Returns an array of `type` that is `piece` at `where` and `fill` elsewhere. If the piece stores a single element for
// an axis and covers the whole axis, the returned array also stores a single element for this axis.
Array placed(const Array &piece, const Type &type, const std::vector<AxisSlice> &where, const Array &fill) {
  const std::size_t element = size_of(type.dtype), rank = type.shape.size();
  Shape stored = type.shape, copied = piece.shape();
  for (std::size_t i = 0; i < rank; ++i)
    if (where[i].count == type.shape[i] && piece.stored()[i] == 1) stored[i] = copied[i] = 1;
  std::vector<std::byte> bytes = room_for(type.dtype, stored);
  const Strides whole = row_major_strides(stored);
  copy_elements(stored, element, {fill.bytes(), Strides(rank, 0)}, {bytes.data(), whole});
  if (element_count(copied) == 0) return make_array(type, stored, std::move(bytes));
  Strides strides = whole;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < rank; ++i) {
    if (stored[i] == type.shape[i]) offset += where[i].start * whole[i];
    strides[i] *= where[i].step;
  }
  copy_elements(copied, element, {piece.bytes(), piece.strides()},
                {bytes.data() + offset * static_cast<std::int64_t>(element), strides});
  return make_array(type, stored, std::move(bytes));
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
  const Strides own = in[0]->strides();
  Shape stored;
  Strides strides;
  for (std::int64_t axis : permutation(node, own.size())) {
    stored.push_back(in[0]->stored()[static_cast<std::size_t>(axis)]);
    strides.push_back(own[static_cast<std::size_t>(axis)]);
  }
  return {read_at(*in[0], out[0], stored, 0, strides)};
}

void differentiate_transpose(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  const Integers perm = permutation(node, builder.type(node.inputs[0]).shape.size());
  Integers inverse(perm.size());
  for (std::size_t i = 0; i < perm.size(); ++i)
    inverse[static_cast<std::size_t>(perm[i])] = static_cast<std::int64_t>(i);
  builder.contribute(node.inputs[0], builder.emit("Transpose", {dy}, {{"perm", inverse}}));
}

std::vector<Type> infer_slice(const NodeTypes &types) {
  Type out = types.input(0);
  require(types.node.inputs.size() == 1, Code::unsupported, types.subject(), "its bounds depend on data");
  const std::vector<AxisSlice> slices = resolve_slices(types.node, out.shape);
  for (std::size_t i = 0; i < slices.size(); ++i) out.shape[i] = slices[i].count;
  return {out};
}

std::vector<Array> evaluate_slice(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const std::vector<AxisSlice> slices = resolve_slices(node, in[0]->shape());
  Strides strides = in[0]->strides();
  Shape stored = out[0].shape;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (in[0]->stored()[i] == 1) stored[i] = std::min<std::int64_t>(stored[i], 1);  // stored once: all slices are equal
    offset += slices[i].start * strides[i];
    strides[i] *= slices[i].step;
  }
  return {read_at(*in[0], out[0], stored, offset, strides)};
}

void differentiate_slice(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  Attributes attributes = node.attributes;
  attributes.set("shape", builder.type(node.inputs[0]).shape);
  builder.contribute(node.inputs[0], builder.emit("SliceGrad", {dy}, attributes));
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
  return {placed(*in[0], out[0], resolve_slices(node, out[0].shape), Array::scalar(out[0].dtype, 0))};
}

std::size_t axis_of_first(const NodeTypes &types) {
  return resolve_axis(types.node.attributes.integer("axis", 0), types.input(0).shape.size(), types.subject());
}

std::vector<Type> infer_concat(const NodeTypes &types) {
  Type out = types.input(0);
  const std::size_t axis = axis_of_first(types);
  for (std::size_t n = 1; n < types.inputs.size(); ++n) {
    const Type &next = types.input(n);
    require(next.dtype == out.dtype && next.shape.size() == out.shape.size(), Code::type, types.subject(),
            "{} and {} cannot be joined", to_text(out), to_text(next));
    for (std::size_t i = 0; i < out.shape.size(); ++i)
      require(i == axis || next.shape[i] == out.shape[i], Code::shape, types.subject(),
              "{} and {} cannot be joined along axis {}", to_text(out), to_text(next), axis);
    out.shape[axis] = static_cast<std::int64_t>(
        checked_add(static_cast<std::uint64_t>(out.shape[axis]), static_cast<std::uint64_t>(next.shape[axis])));
  }
  return {out};
}

std::vector<Array> evaluate_concat(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), out[0].shape.size(), node.name);
  // If all parts store a single element for an axis, as expanded arrays do, the result does so too. The joined axis is
  // stored in full.
  Shape stored = out[0].shape;
  for (std::size_t i = 0; i < stored.size(); ++i)
    if (i != axis && std::ranges::all_of(in, [&](const Array *a) { return a->stored()[i] == 1; })) stored[i] = 1;
  const std::size_t element = size_of(out[0].dtype);
  std::vector<std::byte> bytes = room_for(out[0].dtype, stored);
  const Strides strides = row_major_strides(stored);
  std::byte *to = bytes.data();
  for (const Array *part : in) {
    Shape piece = stored;
    piece[axis] = part->shape()[axis];
    if (element_count(piece) == 0) continue;
    copy_elements(piece, element, {part->bytes(), part->strides()}, {to, strides});
    to += static_cast<std::size_t>(piece[axis] * strides[axis]) * element;
  }
  return {make_array(out[0], stored, std::move(bytes))};
}

Attributes one_slice(std::size_t axis, std::int64_t start, std::int64_t end) {
  return {{"starts", Integers{start}}, {"ends", Integers{end}}, {"axes", Integers{static_cast<std::int64_t>(axis)}}};
}

void differentiate_concat(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  if (dy == ValueId::none) return;
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), builder.type(dy).shape.size(), node.name);
  std::int64_t start = 0;
  for (ValueId in : node.inputs) {
    const std::int64_t end = start + builder.type(in).shape[axis];
    if (builder.wants(in)) builder.contribute(in, builder.emit("Slice", {dy}, one_slice(axis, start, end)));
    start = end;
  }
}

constexpr std::int64_t kMostPieces = 1 << 16;

// Returns the parts' sizes along the axis: attribute `split`, or `num_outputs` equal parts (the last may be smaller).
// Without `num_outputs` there is one part for each output of the node.
Integers split_sizes(const Node &node, std::int64_t length) {
  if (node.attributes.has("split")) return node.attributes.integers("split");
  const std::int64_t pieces = node.attributes.integer("num_outputs", static_cast<std::int64_t>(node.outputs.size()));
  require(pieces > 0 && pieces <= kMostPieces, Code::shape, node.subject(), "a split into {} parts", pieces);
  const std::int64_t each = (length + pieces - 1) / pieces;
  Integers sizes(static_cast<std::size_t>(pieces), each);
  sizes.back() = length - each * (pieces - 1);
  return sizes;
}

std::vector<Type> infer_split(const NodeTypes &types) {
  const Type &x = types.input(0);
  const std::size_t axis = axis_of_first(types);
  const Integers sizes = split_sizes(types.node, x.shape[axis]);
  std::uint64_t total = 0;
  for (std::int64_t size : sizes)
    total = checked_add(total, static_cast<std::uint64_t>(std::max<std::int64_t>(size, 0)));
  require(total == static_cast<std::uint64_t>(x.shape[axis]) &&
              std::ranges::all_of(sizes, [](std::int64_t s) { return s >= 0; }),
          Code::shape, types.subject(), "parts {} do not add up to axis {} of {}", to_text(sizes), axis,
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
  const bool reached = std::ranges::any_of(
      node.outputs, [&](ValueId out) { return out != ValueId::none && builder.gradient_of(out) != ValueId::none; });
  if (!reached) return;
  std::vector<ValueId> parts;
  for (ValueId out : node.outputs) {
    const ValueId dy = builder.gradient_of(out);
    parts.push_back(dy != ValueId::none ? dy : builder.constant(builder.type(out), 0));
  }
  const Attributes attributes = {{"axis", node.attributes.integer("axis", 0)}};
  builder.contribute(node.inputs[0], builder.emit("Concat", parts, attributes));
}

// Returns two lists with an entry for each axis: the pads in front of its elements, and the pads behind them. ONNX's
// single list has the entries of the first list, then those of the second.
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
  require(std::ranges::all_of(pads, [](std::int64_t pad) { return pad >= 0; }), Code::unsupported, node.name,
          "pads {}: negative ones are not supported; use Slice to crop", to_text(pads));
  return {before, after};
}

std::vector<Type> infer_pad(const NodeTypes &types) {
  Type out = types.input(0);
  require(types.node.attributes.text("mode", "constant") == "constant", Code::unsupported, types.subject(),
          "Pad with mode {} is not supported, only constant", types.node.attributes.text("mode", ""));
  require(!types.has(1), Code::unsupported, types.subject(),
          "the pads of Pad are computed from data; shapes that depend on data are not supported");
  const auto [before, after] = pads_of(types.node, out.shape.size());
  for (std::size_t i = 0; i < out.shape.size(); ++i) {
    out.shape[i] = static_cast<std::int64_t>(
        checked_add(checked_add(static_cast<std::uint64_t>(out.shape[i]), static_cast<std::uint64_t>(before[i])),
                    static_cast<std::uint64_t>(after[i])));
  }
  return {out};
}

std::vector<Array> evaluate_pad(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Integers before = pads_of(node, out[0].shape.size()).first;
  std::vector<AxisSlice> where;
  for (std::size_t i = 0; i < before.size(); ++i)
    where.push_back({.start = before[i], .step = 1, .count = in[0]->shape()[i]});
  // `value` was an input in the file. If it was an integer scalar, the attribute is a list of one element.
  const bool is_list = node.attributes.has("value") && !is_float(out[0].dtype);
  const Array fill = is_list ? Array::from_integers({out[0].dtype, {}}, {node.attributes.integers("value").at(0)})
                             : Array::scalar(out[0].dtype, node.attributes.real("value", 0));
  return {placed(*in[0], out[0], where, fill)};
}

void differentiate_pad(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  const Shape shape = builder.type(node.inputs[0]).shape;
  const Integers before = pads_of(node, shape.size()).first;
  Integers ends = before, axes(shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) ends[i] += shape[i];
  std::iota(axes.begin(), axes.end(), std::int64_t{0});
  builder.contribute(node.inputs[0], builder.emit("Slice", {dy}, {{"starts", before}, {"ends", ends}, {"axes", axes}}));
}

std::vector<Type> infer_trilu(const NodeTypes &types) {
  require(types.input(0).shape.size() >= 2, Code::shape, types.subject(), "Trilu takes matrices, not {}",
          to_text(types.input(0)));
  return {types.input(0)};
}

std::vector<Array> evaluate_trilu(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const bool upper = node.attributes.integer("upper", 1) != 0;
  const std::size_t rank = out[0].shape.size();
  const std::int64_t rows = out[0].shape[rank - 2], columns = out[0].shape[rank - 1];
  const std::int64_t k = std::clamp(node.attributes.integer("k", 0), -rows, columns);
  Shape stored = in[0]->stored();
  stored[rank - 2] = rows;
  stored[rank - 1] = columns;
  const Array x = in[0]->stored_as(stored);
  std::vector<std::byte> bytes(x.bytes(), x.bytes() + x.stored_bytes());
  const std::size_t element = size_of(out[0].dtype), row = static_cast<std::size_t>(columns) * element;
  for (std::size_t at = 0, i = 0; at < bytes.size(); at += row, ++i) {
    // Sets the elements outside the triangle to 0 by clearing their bytes, which works for every type. An upper
    // triangle clears the bytes of this row before byte `cut`, and a lower triangle clears those from `cut` on.
    const std::int64_t diagonal = static_cast<std::int64_t>(i % static_cast<std::size_t>(rows)) + k;
    const std::size_t cut =
        static_cast<std::size_t>(std::clamp<std::int64_t>(upper ? diagonal : diagonal + 1, 0, columns)) * element;
    std::memset(bytes.data() + at + (upper ? 0 : cut), 0, upper ? cut : row - cut);
  }
  return {make_array(out[0], stored, std::move(bytes))};
}

void differentiate_trilu(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy != ValueId::none) builder.contribute(node.inputs[0], builder.emit("Trilu", {dy}, node.attributes));
}

// With blocksize b, SpaceToDepth: (N, C, H, W) -> (N, C b b, H / b, W / b). DepthToSpace is the reverse.
std::vector<Type> infer_depth_and_space(const NodeTypes &types) {
  Type out = types.input(0);
  const std::int64_t b = types.node.attributes.integer("blocksize", 0);
  const bool to_space = types.node.op == "DepthToSpace";
  const bool fits = out.shape.size() == 4 && b > 0 && b < 1 << 16 &&
                    (to_space ? out.shape[1] % (b * b) == 0 : out.shape[2] % b == 0 && out.shape[3] % b == 0);
  require(fits, Code::shape, types.subject(), "{} with blocks of {} does not take {}", types.node.op, b,
          to_text(out.shape));
  Shape &s = out.shape;
  s = to_space ? Shape{s[0], s[1] / (b * b), element_count({s[2], b}), element_count({s[3], b})}
               : Shape{s[0], element_count({s[1], b, b}), s[2] / b, s[3] / b};
  return {out};
}

// Infers the result of SplitToSequence. A sequence of equal parts has the type of one part. Canonicalization turns the
// sequence and its readers into Split.
std::vector<Type> infer_split_to_sequence(const NodeTypes &types) {
  Type out = types.input(0);
  const std::size_t axis = axis_of_first(types);
  const Integers sizes = types.node.attributes.integers("split");
  require(std::ranges::adjacent_find(sizes, std::ranges::not_equal_to()) == sizes.end(), Code::unsupported,
          types.subject(), "a sequence of parts of different sizes {} is not supported", to_text(sizes));
  out.shape[axis] = sizes.empty() ? 1 : sizes[0];
  if (sizes.empty() && types.node.attributes.integer("keepdims", 1) == 0)
    out.shape.erase(out.shape.begin() + static_cast<std::ptrdiff_t>(axis));
  return {out};
}

// Throws Code::unsupported. Canonicalization removes a sequence operator if it can tell which parts the operator works
// on. An operator that is left works on parts of unknown types.
std::vector<Type> infer_sequence(const NodeTypes &types) {
  fail(Code::unsupported, types.subject(), "{} of parts that depend on data", types.node.op);
}

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
      {.name = "DepthToSpace", .infer = infer_depth_and_space, .file_only = true},
      {.name = "SpaceToDepth", .infer = infer_depth_and_space, .file_only = true},
      {.name = "SplitToSequence", .infer = infer_split_to_sequence, .absorbed = {{1, "split"}}, .file_only = true},
      {.name = "SequenceAt", .infer = same_as_input, .file_only = true},
      {.name = "SequenceEmpty", .infer = infer_sequence, .file_only = true},
      {.name = "SequenceConstruct", .infer = infer_sequence, .file_only = true},
      {.name = "SequenceInsert", .infer = infer_sequence, .optional = {2}, .file_only = true},
      {.name = "SequenceLength", .infer = infer_sequence, .file_only = true},
      {.name = "ConcatFromSequence", .infer = infer_sequence, .file_only = true},
  };
}

}  // namespace protrain::ops
