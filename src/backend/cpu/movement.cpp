// Operators that only move elements, of any type: strided copies, transposes and Trilu.
#include <cstring>

#include "backend/common/moves.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/transpose.h"

namespace protrain::backend::cpu {

namespace {
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

// Copies, tile by tile, from an input to an output that is contiguous along another dim.
template <typename T>
class TiledTranspose : public CpuKernel {
 public:
  // Needs a layout that merged() has returned. `row` is the dim along which the input is contiguous.
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
    const T *from = input<T>(launch, 0);
    T *to = output<T>(launch, 0);
    for_each_run(outer_, share(outer_.count(), 1, member), [&](std::int64_t at, const auto &offsets, auto count) {
      const std::int64_t first = at % strips_ * kStrip, width = std::min(count * kStrip, columns_ - first);
      transpose<T>({from + offsets[0], from_ld_}, rows_, width, {to + offsets[1], to_ld_});
    });
  }

 private:
  static constexpr std::int64_t kStrip = 64;  // columns that one member takes at a time
  std::int64_t rows_, columns_, from_ld_, to_ld_, strips_;
  Layout<2> outer_;  // all dims except those of rows and columns, then the strips of columns
};
}  // namespace

KernelPtr make_moves(const KernelRequest &request, int) {
  return make_by_size<MovesKernel>(request, request.inputs.at(0).dtype, moves_of(request));
}

KernelPtr make_transpose(const KernelRequest &request, int team_size) {
  const Layout<2> layout = moves_of(request).list[0].layout;
  const auto contiguous = std::find(layout.strides[0].begin(), layout.strides[0].end(), 1);
  if (layout.count() > 0 && layout.inner_stride(0) != 1 && contiguous != layout.strides[0].end()) {
    const auto row = static_cast<std::size_t>(contiguous - layout.strides[0].begin());
    const std::size_t bytes = size_of(request.inputs[0].dtype);
    if (bytes == sizeof(float)) return std::make_unique<TiledTranspose<float>>(layout, row);
    if (bytes == sizeof(std::uint16_t)) return std::make_unique<TiledTranspose<std::uint16_t>>(layout, row);
  }
  return make_moves(request, team_size);
}

namespace {
// Trilu keeps the upper (column >= row + k) or the lower (column <= row + k) part of the last two dims. Elements
// outside that part become 0.
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
    k_ = std::clamp(k_, -rows_, columns_);  // a k beyond these bounds changes nothing more
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

KernelPtr make_trilu(const KernelRequest &request, int) {
  return make_by_size<TriluKernel>(request, request.outputs[0].dtype);
}

}  // namespace protrain::backend::cpu
