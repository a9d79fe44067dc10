// What only moves elements, of any type: Transpose, Slice, SliceGrad, Concat, Split, Expand, Pad, Trilu.
// All but Trilu and transposes of the innermost dim are lists of strided copies.
#include <cstring>
#include <optional>

#include "backend/cpu/elementwise.h"
#include "backend/cpu/transpose.h"

namespace protrain::backend {

namespace {
// One strided copy between an input and an output; offsets and strides in elements.
struct Move {
  std::size_t from = 0, to = 0;  // which input, which output
  Layout<2> layout = {};         // strides of the input, strides of the output
  std::int64_t from_offset = 0, to_offset = 0;
};

using Element = std::array<std::byte, sizeof(std::uint64_t)>;  // one of any type, at the front

struct Moves {
  std::vector<Move> list;
  std::optional<Element> fill = {};  // of all of output 0, before anything is copied to it
};

template <typename T>
void copy_run(const T *from, std::int64_t from_stride, T *to, std::int64_t to_stride, std::int64_t count) {
  if (from_stride == 1 && to_stride == 1)
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(T));
  else if (from_stride == 0 && to_stride == 1)
    std::fill_n(to, count, *from);
  else
    for (std::int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

template <typename T>
class MovesKernel : public CpuKernel {
 public:
  MovesKernel(const KernelRequest &request, Moves moves)
      : moves_(std::move(moves.list)), fills_(moves.fill.has_value()) {
    for (Move &move : moves_) move.layout = merged(move.layout, subject(request));
    if (!fills_) return;
    filled_ = element_count(request.outputs[0].shape);
    std::memcpy(&fill_, moves.fill->data(), sizeof fill_);
  }

  void run(Member &member, const Launch &launch) override {
    if (fills_) {
      const Range mine = share(filled_, kElementGrain, member);
      std::fill_n(output<T>(launch, 0) + mine.begin, mine.size(), fill_);
      member.barrier();
    }
    for (const Move &move : moves_) {
      const T *from = input<T>(launch, move.from) + move.from_offset;
      T *to = output<T>(launch, move.to) + move.to_offset;
      const std::int64_t from_stride = move.layout.inner_stride(0), to_stride = move.layout.inner_stride(1);
      for_each_run(move.layout, share(move.layout.count(), kElementGrain, member),
                   [&](std::int64_t, const auto &at, auto count) {
                     copy_run(from + at[0], from_stride, to + at[1], to_stride, count);
                   });
    }
  }

 private:
  std::vector<Move> moves_;
  bool fills_;
  T fill_ = 0;
  std::int64_t filled_ = 0;
};

std::unique_ptr<CpuKernel> make_moves(const KernelRequest &request, Moves moves) {
  return make_by_size<MovesKernel>(request, request.inputs.at(0).dtype, std::move(moves));
}

// A regular part of a tensor of `shape`: where it begins, and how far apart its neighbours are.
struct Part {
  std::int64_t offset = 0;
  Strides strides;

  explicit Part(const Shape &shape) : strides(row_major_strides(shape)) {}
  void begin_at(std::size_t axis, std::int64_t position) { offset += position * strides[axis]; }
};

// What Slice's attributes cut out of `whole`; `cut` is the shape inferred for it.
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
    if (cut.at(axis) == 0) continue;  // nothing is cut out
    const std::int64_t last = first[axis] + (cut[axis] - 1) * step[axis];
    require(std::min(first[axis], last) >= 0 && std::max(first[axis], last) < whole[axis], Code::shape,
            subject(request), "a slice from {} to {} leaves axis {} of {}", first[axis], last, axis, to_text(whole));
    part.begin_at(axis, first[axis]);
    part.strides[axis] *= step[axis];
  }
  return part;
}

// The tile-wise transpose of dims whose order changes the innermost one, for 4-byte elements.
class TiledTranspose : public CpuKernel {
 public:
  // `layout` is merged; `row` is the dim along which the input is contiguous.
  TiledTranspose(const Layout<2> &layout, std::size_t row) {
    const std::size_t last = layout.dims.size() - 1;
    columns_ = layout.dims[row];
    rows_ = layout.dims[last];
    from_ld_ = layout.strides[0][last];
    to_ld_ = layout.strides[1][row];
    strips_ = (columns_ + kStrip - 1) / kStrip;
    for (std::size_t axis = 0; axis < last; ++axis) {
      if (axis == row) continue;
      outer_.dims.push_back(layout.dims[axis]);
      for (std::size_t n : {0, 1}) outer_.strides[n].push_back(layout.strides[n][axis]);
    }
    outer_.dims.push_back(strips_);
    outer_.strides[0].push_back(kStrip);
    outer_.strides[1].push_back(kStrip * to_ld_);
  }

  void run(Member &member, const Launch &launch) override {
    const float *from = input<float>(launch, 0);
    float *to = output<float>(launch, 0);
    for_each_run(outer_, share(outer_.count(), 1, member), [&](std::int64_t at, const auto &offsets, auto count) {
      const std::int64_t first = at % strips_ * kStrip, width = std::min(count * kStrip, columns_ - first);
      transpose({from + offsets[0], from_ld_}, rows_, width, {to + offsets[1], to_ld_});
    });
  }

 private:
  static constexpr std::int64_t kStrip = 64;  // columns that one member takes at a time
  std::int64_t rows_, columns_, from_ld_, to_ld_, strips_;
  Layout<2> outer_;  // the other dims, then strips of columns
};
}  // namespace

std::unique_ptr<CpuKernel> make_transpose(const KernelRequest &request, int) {
  const Shape &shape = request.inputs.at(0).shape;
  const Strides own = row_major_strides(shape);
  auto order = request.node.attributes.integers("perm");
  if (order.empty())
    for (std::size_t i = shape.size(); i-- > 0;) order.push_back(static_cast<std::int64_t>(i));
  Move move{.layout = {request.outputs[0].shape, {Strides{}, row_major_strides(request.outputs[0].shape)}}};
  for (std::int64_t axis : order)
    move.layout.strides[0].push_back(own[resolve_axis(axis, own.size(), subject(request))]);
  if (size_of(request.inputs[0].dtype) == sizeof(float) && move.layout.count() > 0) {
    const Layout<2> layout = merged(move.layout, subject(request));
    const auto row = std::find(layout.strides[0].begin(), layout.strides[0].end(), 1);
    if (layout.inner_stride(0) != 1 && row != layout.strides[0].end())
      return std::make_unique<TiledTranspose>(layout, static_cast<std::size_t>(row - layout.strides[0].begin()));
  }
  return make_moves(request, {{move}});
}

std::unique_ptr<CpuKernel> make_slice(const KernelRequest &request, int) {
  const Shape &cut = request.outputs[0].shape;
  const Part part = sliced(request, request.inputs.at(0).shape, cut);
  return make_moves(request, {{{.layout = {cut, {part.strides, row_major_strides(cut)}}, .from_offset = part.offset}}});
}

std::unique_ptr<CpuKernel> make_slice_grad(const KernelRequest &request, int) {
  const Shape &cut = request.inputs.at(0).shape;
  const Part part = sliced(request, request.outputs[0].shape, cut);
  return make_moves(request,
                    {{{.layout = {cut, {row_major_strides(cut), part.strides}}, .to_offset = part.offset}}, Element{}});
}

std::unique_ptr<CpuKernel> make_concat(const KernelRequest &request, int) {
  const Shape &whole = request.outputs[0].shape;
  const std::size_t axis = resolve_axis(request.node.attributes.integer("axis", 0), whole.size(), subject(request));
  Moves moves;
  std::int64_t position = 0;
  for (std::size_t i = 0; i < request.inputs.size(); ++i) {
    const Shape &piece = request.inputs[i].shape;
    Part part(whole);
    part.begin_at(axis, position);
    moves.list.push_back(
        {.from = i, .layout = {piece, {row_major_strides(piece), part.strides}}, .to_offset = part.offset});
    position += piece.at(axis);
  }
  return make_moves(request, std::move(moves));
}

std::unique_ptr<CpuKernel> make_split(const KernelRequest &request, int) {
  const Shape &whole = request.inputs.at(0).shape;
  const std::size_t axis = resolve_axis(request.node.attributes.integer("axis", 0), whole.size(), subject(request));
  const auto sizes = request.node.attributes.integers("split");
  const auto pieces = static_cast<std::int64_t>(request.outputs.size());
  Moves moves;
  std::int64_t position = 0;
  for (std::size_t i = 0; i < request.outputs.size(); ++i) {
    if (has_output(request, i)) {
      const Shape &piece = request.outputs[i].shape;
      Part part(whole);
      part.begin_at(axis, position);
      moves.list.push_back(
          {.to = i, .layout = {piece, {part.strides, row_major_strides(piece)}}, .from_offset = part.offset});
    }
    position += sizes.empty() ? (whole[axis] + pieces - 1) / pieces : sizes.at(i);
  }
  return make_moves(request, std::move(moves));
}

std::unique_ptr<CpuKernel> make_expand(const KernelRequest &request, int) {
  const Shape &target = request.outputs[0].shape;
  const Strides from = broadcast_strides(request.inputs.at(0).shape, target, subject(request));
  return make_moves(request, {{{.layout = {target, {from, row_major_strides(target)}}}}});
}

namespace {
// Pad's value: a number, or a list of one integer where an integer constant was absorbed.
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
}  // namespace

std::unique_ptr<CpuKernel> make_pad(const KernelRequest &request, int) {
  const Shape &from = request.inputs.at(0).shape, &to = request.outputs[0].shape;
  const auto pads = request.node.attributes.integers("pads");
  auto axes = request.node.attributes.integers("axes");
  if (axes.empty())
    for (std::size_t i = 0; i < from.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  Part source(from), target(to);
  Shape kept = from;
  for (std::size_t i = 0; i < axes.size(); ++i) {  // negative pads cut off
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
  return make_moves(request, std::move(moves));
}

namespace {
// Keeps the upper (column >= row + k) or lower (column <= row + k) part of the last two dims, zeroes the other.
template <typename T>
class TriluKernel : public CpuKernel {
 public:
  explicit TriluKernel(const KernelRequest &request)
      : upper_(request.node.attributes.integer("upper", 1) != 0), k_(request.node.attributes.integer("k", 0)) {
    const Shape &shape = request.outputs[0].shape;
    require(shape.size() >= 2, Code::shape, subject(request), "{} has no last two dims", to_text(shape));
    rows_ = shape[shape.size() - 2];
    columns_ = shape.back();
    all_rows_ = columns_ == 0 ? 0 : element_count(shape) / columns_;
    k_ = std::clamp(k_, -rows_, columns_);  // beyond, nothing changes
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(all_rows_, 1, member);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const T *from = input<T>(launch, 0) + i * columns_;
      T *to = output<T>(launch, 0) + i * columns_;
      const std::int64_t cut = std::clamp<std::int64_t>(i % rows_ + k_ + (upper_ ? 0 : 1), 0, columns_);
      const Range kept = upper_ ? Range{cut, columns_} : Range{0, cut},
                  cleared = upper_ ? Range{0, cut} : Range{cut, columns_};
      std::copy(from + kept.begin, from + kept.end, to + kept.begin);
      std::fill(to + cleared.begin, to + cleared.end, T{0});
    }
  }

 private:
  bool upper_;
  std::int64_t k_, rows_, columns_, all_rows_;
};
}  // namespace

std::unique_ptr<CpuKernel> make_trilu(const KernelRequest &request, int) {
  return make_by_size<TriluKernel>(request, request.outputs[0].dtype);
}

}  // namespace protrain::backend
