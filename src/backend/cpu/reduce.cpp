// ReduceSum, ReduceMean, ReduceMax, ReduceMin over any axes, in float32 and in an order that depends on shapes alone.
//
// Neighbouring axes that are both kept or both reduced are merged. The innermost merged axis is called the row. If the
// row is kept, rows are joined element by element. If the row is reduced, it is cut into segments, and each segment is
// folded along vector lanes to one number. The rows or segments that belong to the same result are grouped into blocks.
// Members take blocks, and the blocks' results are joined in order.
#include <algorithm>

#include "backend/common/axes.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/lanes.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kMostBlocks = 128;  // most blocks of one result
constexpr std::int64_t kStrip = 1024;      // elements of a kept row in one task; they stay in the first cache
constexpr std::int64_t kSegment = 4096;    // elements of a reduced row that are folded at once

template <typename Join, typename T>
struct Loops {
  // into[i] = join(into[i], x[i])
  PROTRAIN_CLONES static void join(const T *x, float *into, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) into[i] = Join{}(into[i], widened(x[i]));
  }
  PROTRAIN_CLONES static float fold(const T *x, std::int64_t count) {
    return fold_lanes(count, Join{}, [x](std::int64_t i) { return widened(x[i]); });
  }
  PROTRAIN_CLONES static void divide(const float *x, float divisor, T *y, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = narrowed<T>(x[i] / divisor);
  }
};

// Returns the offset of the element with number `index` in the order of `layout`.
std::int64_t offset_of(const Layout<1> &layout, std::int64_t index) {
  std::int64_t offset = 0;
  for (std::size_t axis = layout.dims.size(); axis-- > 0; index /= layout.dims[axis])
    offset += index % layout.dims[axis] * layout.strides[0][axis];
  return offset;
}

template <typename T, typename Join>
class ReduceKernel : public CpuKernel {
 public:
  explicit ReduceKernel(const KernelRequest &request) {
    const Shape &shape = request.inputs[0].shape;
    lay_out(shape, reduced_axes(request));
    results_ = kept_.count();
    rows_ = reduced_.count();
    const std::int64_t reduced_elements = rows_ * (row_kept_ ? 1 : row_);
    if (request.node.op == "ReduceMean") divisor_ = static_cast<float>(reduced_elements);
    width_ = row_kept_ ? row_ : 1;
    segments_ = row_kept_ ? 1 : (row_ + kSegment - 1) / kSegment;
    const std::int64_t units = rows_ * segments_;
    block_ = std::max<std::int64_t>(row_kept_ ? 64 : 16, (units + kMostBlocks - 1) / kMostBlocks);
    blocks_ = std::max<std::int64_t>((units + block_ - 1) / block_, 1);
    if (blocks_ > 1)
      scratch_bytes = checked_multiply(checked_multiply(static_cast<std::uint64_t>(results_ * width_), sizeof(float)),
                                       static_cast<std::uint64_t>(blocks_));
  }

  void run(Member &member, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    T *y = output<T>(launch, 0);
    float *partial = static_cast<float *>(launch.scratch);  // (results, blocks, width)
    const std::int64_t strips = (width_ + kStrip - 1) / kStrip;
    const Range tasks = share(results_ * blocks_ * strips, 1, member);
    for (std::int64_t task = tasks.begin; task < tasks.end; ++task) {
      const std::int64_t slot = task / strips, first = task % strips * kStrip;
      const Range columns{first, std::min(first + kStrip, width_)};
      alignas(64) float own[kStrip];
      float *to = blocks_ > 1 ? partial + slot * width_ + first : own;
      reduce_block(x + offset_of(kept_, slot / blocks_), slot % blocks_, columns, to);
      if (blocks_ == 1) Loops<Join, T>::divide(own, divisor_, y + slot * width_ + first, columns.size());
    }
    if (blocks_ == 1) return;
    member.barrier();
    join_blocks(share(results_ * width_, kLanes, member), partial, y);
  }

 private:
  // Merges neighbouring axes that are both kept or both reduced. The innermost merged axis becomes the row. Each other
  // merged axis goes to kept_ or reduced_.
  void lay_out(const Shape &shape, const std::vector<bool> &reduced) {
    const Strides strides = row_major_strides(shape);
    bool row_known = false, last_kept = true;
    Layout<1> *outer = nullptr;  // the layout that the previous axis went to; nullptr: that axis went to the row
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (shape[axis] == 1) continue;
      const bool keeps = !reduced[axis];
      if (!row_known) {
        row_ = shape[axis];
        row_kept_ = keeps;
      } else if (keeps == last_kept) {
        (outer ? outer->dims.front() : row_) *= shape[axis];
      } else {
        outer = keeps ? &kept_ : &reduced_;
        outer->dims.insert(outer->dims.begin(), shape[axis]);
        outer->strides[0].insert(outer->strides[0].begin(), strides[axis]);
      }
      row_known = true;
      last_kept = keeps;
    }
  }

  // Reduces the rows or segments of one block into `to`, for the columns `columns`. The first element of `to` belongs
  // to column columns.begin.
  void reduce_block(const T *from, std::int64_t block, Range columns, float *to) const {
    const Range units{block * block_, std::min((block + 1) * block_, rows_ * segments_)};
    std::fill_n(to, columns.size(), Join::kStart);
    if (row_kept_) {
      for (std::int64_t row = units.begin; row < units.end; ++row)
        Loops<Join, T>::join(from + offset_of(reduced_, row) + columns.begin, to, columns.size());
      return;
    }
    for (std::int64_t unit = units.begin; unit < units.end; ++unit) {
      const std::int64_t first = unit % segments_ * kSegment;
      const T *at = from + offset_of(reduced_, unit / segments_) + first;
      *to = Join{}(*to, Loops<Join, T>::fold(at, std::min(kSegment, row_ - first)));
    }
  }

  // Joins the blocks' values of each element in [range.begin, range.end), in the order of the blocks. The joined value
  // replaces the value of the first block. Then it is divided by divisor_ and written to y. divisor_ is 1 except for a
  // mean.
  void join_blocks(Range range, float *partial, T *y) const {
    for (std::int64_t at = range.begin; at < range.end;) {
      const std::int64_t column = at % width_, count = std::min(width_ - column, range.end - at);
      float *total = partial + at / width_ * blocks_ * width_ + column;
      for (std::int64_t block = 1; block < blocks_; ++block)
        Loops<Join, float>::join(total + block * width_, total, count);
      Loops<Join, T>::divide(total, divisor_, y + at, count);
      at += count;
    }
  }

  Layout<1> kept_, reduced_;  // all axes except the row
  std::int64_t row_ = 1;
  bool row_kept_ = true;
  float divisor_ = 1;
  std::int64_t results_, rows_;  // element counts of kept_ and of reduced_
  std::int64_t width_;           // number of results in a row: the row's length if it is kept, else 1
  std::int64_t segments_;        // segments of a row
  std::int64_t block_, blocks_;  // rows (row_kept_) or segments in a block; blocks of one result
};
}  // namespace

KernelPtr make_reduce(const KernelRequest &request, int) {
  const DType dtype = request.inputs.at(0).dtype;
  if (dtype == DType::i64 || dtype == DType::i32) return make_reduce_integers(request);
  return by_float(request, request.inputs[0], [&]<typename T>(T) -> KernelPtr {
    const std::string &op = request.node.op;
    if (op == "ReduceMax") return std::make_unique<ReduceKernel<T, Larger>>(request);
    if (op == "ReduceMin") return std::make_unique<ReduceKernel<T, Smaller>>(request);
    return std::make_unique<ReduceKernel<T, Plus>>(request);
  });
}

}  // namespace protrain::backend::cpu
