#include "backend/common/moves.h"

#include <algorithm>

#include "backend/request.h"

namespace protrain::backend {

namespace {
// A strided part of a tensor: the offset of its first element, and its strides. The constructor makes a part that is
// the whole tensor, of shape `shape`.
struct Part {
  std::int64_t offset = 0;
  Strides strides;

  explicit Part(const Shape &shape) : strides(row_major_strides(shape)) {}
  void begin_at(std::size_t axis, std::int64_t position) { offset += position * strides[axis]; }
};

// Returns the part that Slice's attributes cut out of a tensor of shape `whole`. `cut` is the part's inferred shape.
Part sliced(const KernelRequest &request, const Shape &whole, const Shape &cut) {
  const auto starts = request.node.attributes.integers("starts"), steps = request.node.attributes.integers("steps");
  auto axes = request.node.attributes.integers("axes");
  if (axes.empty())
    for (std::size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  Part part(whole);
  std::vector<std::int64_t> first(whole.size(), 0), step(whole.size(), 1);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = resolve_axis(axes[i], whole.size(), subject(request));
    const std::int64_t dim = whole[axis], start = starts.at(i) < 0 ? starts[i] + dim : starts[i];
    step[axis] = steps.empty() ? 1 : steps.at(i);
    first[axis] = std::clamp<std::int64_t>(start, 0, std::max<std::int64_t>(step[axis] < 0 ? dim - 1 : dim, 0));
  }
  for (std::size_t axis = 0; axis < whole.size(); ++axis) {
    if (cut.at(axis) == 0) continue;  // the part is empty
    const std::int64_t last = first[axis] + (cut[axis] - 1) * step[axis];
    require(std::min(first[axis], last) >= 0 && std::max(first[axis], last) < whole[axis], Code::shape,
            subject(request), "a slice from {} to {} leaves axis {} of {}", first[axis], last, axis, to_text(whole));
    part.begin_at(axis, first[axis]);
    part.strides[axis] *= step[axis];
  }
  return part;
}

Moves transpose(const KernelRequest &request) {
  const Strides own = row_major_strides(request.inputs.at(0).shape);
  auto order = request.node.attributes.integers("perm");
  if (order.empty())
    for (std::size_t i = own.size(); i-- > 0;) order.push_back(static_cast<std::int64_t>(i));
  Move move{.layout = {request.outputs[0].shape, {Strides{}, row_major_strides(request.outputs[0].shape)}}};
  for (std::int64_t axis : order)
    move.layout.strides[0].push_back(own[resolve_axis(axis, own.size(), subject(request))]);
  return {{move}};
}

Moves slice(const KernelRequest &request) {
  const Shape &cut = request.outputs[0].shape;
  const Part part = sliced(request, request.inputs.at(0).shape, cut);
  return {{{.layout = {cut, {part.strides, row_major_strides(cut)}}, .from_offset = part.offset}}};
}

Moves slice_gradient(const KernelRequest &request) {
  const Shape &cut = request.inputs.at(0).shape;
  const Part part = sliced(request, request.outputs[0].shape, cut);
  return {{{.layout = {cut, {row_major_strides(cut), part.strides}}, .to_offset = part.offset}}, Element{}};
}

Moves concat(const KernelRequest &request) {
  const Shape &whole = request.outputs[0].shape;
  const std::size_t axis = resolve_axis(request.node.attributes.integer("axis", 0), whole.size(), subject(request));
  Moves moves;
  std::int64_t position = 0;
  for (std::size_t i = 0; i < request.inputs.size(); ++i) {
    const Shape &shape = request.inputs[i].shape;
    Part part(whole);
    part.begin_at(axis, position);
    moves.list.push_back(
        {.from = i, .layout = {shape, {row_major_strides(shape), part.strides}}, .to_offset = part.offset});
    position += shape.at(axis);
  }
  return moves;
}

Moves split(const KernelRequest &request) {
  const Shape &whole = request.inputs.at(0).shape;
  const std::size_t axis = resolve_axis(request.node.attributes.integer("axis", 0), whole.size(), subject(request));
  const auto sizes = request.node.attributes.integers("split");
  const auto parts = static_cast<std::int64_t>(request.outputs.size());
  Moves moves;
  std::int64_t position = 0;
  for (std::size_t i = 0; i < request.outputs.size(); ++i) {
    if (has_output(request, i)) {
      const Shape &shape = request.outputs[i].shape;
      Part part(whole);
      part.begin_at(axis, position);
      moves.list.push_back(
          {.to = i, .layout = {shape, {part.strides, row_major_strides(shape)}}, .from_offset = part.offset});
    }
    position += sizes.empty() ? (whole[axis] + parts - 1) / parts : sizes.at(i);
  }
  return moves;
}

Moves expand(const KernelRequest &request) {
  const Shape &target = request.outputs[0].shape;
  const Strides from = broadcast_strides(request.inputs.at(0).shape, target, subject(request));
  return {{{.layout = {target, {from, row_major_strides(target)}}}}};
}

// Returns Pad's value. The attribute is a real number for floats, and a list of one integer for other types.
Element fill_value(const KernelRequest &request) {
  const graph::Attributes &attributes = request.node.attributes;
  const DType dtype = request.outputs[0].dtype;
  Element fill{};
  if (attributes.has("value") && !is_float(dtype))
    graph::store_integer(dtype, fill.data(), attributes.integers("value").at(0));
  else
    graph::store_double(dtype, fill.data(), attributes.real("value", 0));
  return fill;
}

Moves pad(const KernelRequest &request) {
  const Shape &from = request.inputs.at(0).shape, &to = request.outputs[0].shape;
  const auto pads = request.node.attributes.integers("pads");
  auto axes = request.node.attributes.integers("axes");
  if (axes.empty())
    for (std::size_t i = 0; i < from.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  Part source(from), target(to);
  Shape kept = from;
  for (std::size_t i = 0; i < axes.size(); ++i) {  // negative pads remove elements
    const std::size_t axis = resolve_axis(axes[i], from.size(), subject(request));
    const std::int64_t before = pads.at(i), after = pads.at(i + axes.size());
    source.begin_at(axis, std::max<std::int64_t>(-before, 0));
    target.begin_at(axis, std::max<std::int64_t>(before, 0));
    kept[axis] += std::min<std::int64_t>(before, 0) + std::min<std::int64_t>(after, 0);
  }
  Moves moves{{}, fill_value(request)};
  if (std::all_of(kept.begin(), kept.end(), [](std::int64_t dim) { return dim > 0; }))
    moves.list.push_back(
        {.layout = {kept, {source.strides, target.strides}}, .from_offset = source.offset, .to_offset = target.offset});
  return moves;
}

constexpr struct {
  std::string_view op;
  Moves (*make)(const KernelRequest &);
} kRows[] = {
    {"Transpose", transpose}, {"Slice", slice}, {"SliceGrad", slice_gradient}, {"Concat", concat}, {"Split", split},
    {"Expand", expand},       {"Pad", pad},
};
}  // namespace

Moves moves_of(const KernelRequest &request) {
  const auto *row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const auto &r) { return r.op == request.node.op; });
  require(row != std::end(kRows), Code::internal, subject(request), "{} is no movement", request.node.op);
  Moves moves = row->make(request);
  for (Move &move : moves.list) move.layout = merged(move.layout, subject(request));
  return moves;
}

}  // namespace protrain::backend
