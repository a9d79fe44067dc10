// LayerNormalization, RMSNormalization and their gradients. Tensors are (rows, width). Forward kernels divide the rows
// among the members, and gradient kernels divide blocks of rows. The gradients of scale and bias are summed over the
// rows of each block, then over the blocks in order. The shape alone fixes the blocks, so bits do not depend on the
// team.
#include <algorithm>
#include <cmath>

#include "backend/common/axes.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/lanes.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
void require_scale(const KernelRequest &request, std::size_t scale, const NormalizedRows &dims) {
  const std::int64_t scales = element_count(request.inputs.at(scale).shape);
  require(scales == dims.width, Code::unsupported, subject(request),
          "a scale of {} elements for rows of {}: the cpu wants one for each", scales, dims.width);
}

struct Moments {
  float mean = 0, inverse = 0;  // inverse: 1 / standard deviation, or 1 / root mean square
};

template <bool centered>
PROTRAIN_INLINE Moments moments(const float *x, std::int64_t width, float epsilon) {
  const float count = static_cast<float>(width);
  const float mean = centered ? lane_sum(width, [x](std::int64_t i) { return x[i]; }) / count : 0;
  const float squares = lane_sum(width, [x, mean](std::int64_t i) { return (x[i] - mean) * (x[i] - mean); });
  return {mean, 1.0f / std::sqrt(squares / count + epsilon)};
}

struct RowOperands {
  const float *x, *scale, *bias;  // bias may be nullptr
  float *y;                       // may be x; nullptr: only mean and inverse are wanted
};

template <bool centered>
PROTRAIN_INLINE Moments normalize(const RowOperands &row, std::int64_t width, float epsilon) {
  const auto [x, scale, bias, y] = row;
  const Moments m = moments<centered>(x, width, epsilon);
  if (!y) return m;
  if (bias) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) y[i] = (x[i] - m.mean) * m.inverse * scale[i] + bias[i];
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) y[i] = (x[i] - m.mean) * m.inverse * scale[i];
  }
  return m;
}

PROTRAIN_CLONES Moments layer_row(const RowOperands &row, std::int64_t width, float epsilon) {
  return normalize<true>(row, width, epsilon);
}
PROTRAIN_CLONES Moments rms_row(const RowOperands &row, std::int64_t width, float epsilon) {
  return normalize<false>(row, width, epsilon);
}

struct GradOperands {
  const float *dy = nullptr, *x = nullptr, *scale = nullptr;
  Moments moments = {};
  float *dx = nullptr, *dscale = nullptr,
        *dbias = nullptr;  // each may be nullptr; dx may be dy; sums are added to dscale and dbias
};

// With n = (x - mean) * inverse and g = dy * scale, computes dx = inverse * (g - mean(g) - n * mean(g n)), adds dy * n
// to dscale, and adds dy to dbias. mean() is the mean over the row. RMSNormalization leaves out mean(g).
template <bool centered>
PROTRAIN_INLINE void normalize_grad(const GradOperands &row, std::int64_t width) {
  const float *const dy = row.dy, *const x = row.x, *const scale = row.scale;
  float *const dx = row.dx, *const dscale = row.dscale, *const dbias = row.dbias;
  const float mean = row.moments.mean, inverse = row.moments.inverse, count = static_cast<float>(width);
  if (dscale) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dscale[i] += dy[i] * ((x[i] - mean) * inverse);
  }
  if (dbias) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dbias[i] += dy[i];
  }
  if (dx) {
    const float sum = centered ? lane_sum(width, [dy, scale](std::int64_t i) { return dy[i] * scale[i]; }) / count : 0;
    const float dot = lane_sum(width, [dy, scale, x, mean, inverse](
                                          std::int64_t i) { return dy[i] * scale[i] * ((x[i] - mean) * inverse); }) /
                      count;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dx[i] = inverse * (dy[i] * scale[i] - sum - (x[i] - mean) * inverse * dot);
  }
}

PROTRAIN_CLONES void layer_row_grad(const GradOperands &row, std::int64_t width) { normalize_grad<true>(row, width); }
PROTRAIN_CLONES void rms_row_grad(const GradOperands &row, std::int64_t width) { normalize_grad<false>(row, width); }

PROTRAIN_CLONES void add(const float *x, float *into, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) into[i] += x[i];
}

template <typename T>
class NormalizationKernel : public CpuKernel {
 public:
  NormalizationKernel(const KernelRequest &request, int team_size)
      : centered_(request.node.op == "LayerNormalization"),
        dims_(request, request.inputs.at(0).shape),
        epsilon_(static_cast<float>(request.node.attributes.real("epsilon", 1e-5))),
        has_bias_(centered_ && has_input(request, 2)),
        rows_(dims_.width, 1, 3) {
    require_scale(request, 1, dims_);
    for (const graph::Type &operand : request.inputs)
      if (operand.dtype != DType::none) require_dtype(request, operand, request.inputs[0].dtype);
    scratch_bytes = rows_.scratch_bytes(members_at_work(dims_.rows, team_size));
  }

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(dims_.rows, 1, member);
    if (mine.size() == 0) return;  // before the scratch is used, of which this member has none
    const auto room = [&](int number) { return rows_.room(launch.scratch, member, number); };
    float *x_room = room(0);
    const float *scale = rows_.read(input<T>(launch, 1), room(1));
    const float *bias = has_bias_ ? rows_.read(input<T>(launch, 2), room(2)) : nullptr;
    T *to = optional_output<T>(launch, 0);
    float *mean = centered_ ? optional_output<float>(launch, 1) : nullptr;
    float *inverse = optional_output<float>(launch, centered_ ? 2 : 1);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::int64_t at = i * dims_.width;
      RowOperands row{rows_.read(input<T>(launch, 0) + at, x_room), scale, bias, nullptr};
      if (to) row.y = rows_.place(to + at, x_room);
      const Moments m = (centered_ ? layer_row : rms_row)(row, dims_.width, epsilon_);
      if (to) rows_.write(row.y, to + at);
      if (mean) mean[i] = m.mean;
      if (inverse) inverse[i] = m.inverse;
    }
  }

 private:
  const bool centered_;
  const NormalizedRows dims_;
  const float epsilon_;
  const bool has_bias_;
  const FloatRows<T> rows_;
};

template <typename T>
class NormalizationGradKernel : public CpuKernel {
 public:
  NormalizationGradKernel(const KernelRequest &request, int team_size)
      : centered_(request.node.op == "LayerNormalizationGrad"),
        rest_(centered_ ? 5 : 4),
        dims_(request, request.inputs.at(1).shape),
        block_(std::max(kLeastBlock, (dims_.rows + kMostBlocks - 1) / kMostBlocks)),
        blocks_(std::max<std::int64_t>((dims_.rows + block_ - 1) / block_, 1)),
        rows_(dims_.width, 1, 3) {
    require_scale(request, 2, dims_);
    for (std::size_t i = 0; i < request.inputs.size(); ++i)
      if (has_input(request, i))
        require_dtype(request, request.inputs[i], i < 3 || i == rest_ ? request.inputs[0].dtype : DType::f32);
    for (std::size_t i : {1, 2})
      if (has_output(request, i)) ++sums_;
    const std::uint64_t floats =
        checked_multiply(static_cast<std::uint64_t>(blocks_ * sums_), static_cast<std::uint64_t>(dims_.width));
    rooms_at_ = round_up(checked_multiply(floats, sizeof(float)), kAlignment);
    scratch_bytes = checked_add(rooms_at_, rows_.scratch_bytes(members_at_work(blocks_, team_size)));
  }

  void run(Member &member, const Launch &launch) override {
    const std::int64_t width = dims_.width;
    T *dscale = optional_output<T>(launch, 1), *dbias = centered_ ? optional_output<T>(launch, 2) : nullptr;
    float *partial = static_cast<float *>(launch.scratch);  // (blocks, sums, width)
    const Rooms rooms = rooms_of(member, launch);
    const Range mine = share(blocks_, 1, member);
    // A member without blocks has no scratch to read the scale into.
    const float *scale = mine.size() > 0 ? rows_.read(input<T>(launch, 2), rooms.scale) : nullptr;
    for (std::int64_t b = mine.begin; b < mine.end; ++b) {
      float *own = partial + b * sums_ * width;
      std::fill_n(own, sums_ * width, 0.0f);
      const GradOperands all{
          .scale = scale, .dscale = dscale ? own : nullptr, .dbias = dbias ? own + (sums_ - 1) * width : nullptr};
      run_rows({b * block_, std::min((b + 1) * block_, dims_.rows)}, launch, all, rooms);
    }
    if (sums_ == 0) return;
    member.barrier();
    const Range columns = share(width, kLanes, member);
    if (dscale) sum_blocks(partial, columns, dscale);
    if (dbias) sum_blocks(partial + (sums_ - 1) * width, columns, dbias);
  }

 private:
  static constexpr std::int64_t kLeastBlock = 32, kMostBlocks = 128;

  struct Rooms {
    float *dy, *x, *scale;
  };
  Rooms rooms_of(const Member &member, const Launch &launch) const {
    void *rooms = static_cast<std::byte *>(launch.scratch) + rooms_at_;
    return {rows_.room(rooms, member, 0), rows_.room(rooms, member, 1), rows_.room(rooms, member, 2)};
  }

  // Computes the gradients of some rows. `all` holds the operands that all rows share.
  void run_rows(Range rows, const Launch &launch, const GradOperands &all, const Rooms &rooms) const {
    const float *mean = centered_ ? input<float>(launch, 3) : nullptr, *inverse = input<float>(launch, rest_ - 1);
    const T *rest = optional_input<T>(launch, rest_);
    T *dx = optional_output<T>(launch, 0);
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      const std::int64_t at = i * dims_.width;
      GradOperands row = all;
      row.dy = rows_.read(input<T>(launch, 0) + at, rooms.dy);
      row.x = rows_.read(input<T>(launch, 1) + at, rooms.x);
      row.moments = {mean ? mean[i] : 0, inverse[i]};
      if (dx) row.dx = rows_.place(dx + at, rooms.dy);
      (centered_ ? layer_row_grad : rms_row_grad)(row, dims_.width);
      if (dx) rows_.write(row.dx, dx + at);
      if (dx && rest) {  // dx is rounded before the addition, as for a separate Add
        rows_.read(dx + at, row.dx);
        add(rows_.read(rest + at, rooms.x), row.dx, dims_.width);
        rows_.write(row.dx, dx + at);
      }
    }
  }

  // Adds the sums of the other blocks, in order, to those of the first block, and writes the total to `to`.
  void sum_blocks(float *partial, Range columns, T *to) const {
    float *total = partial + columns.begin;
    for (std::int64_t b = 1; b < blocks_; ++b) add(total + b * sums_ * dims_.width, total, columns.size());
    narrow(total, to + columns.begin, columns.size());
  }

  const bool centered_;
  const std::size_t rest_;  // index of the input that is added to dx
  const NormalizedRows dims_;
  const std::int64_t block_, blocks_;  // rows in a block; number of blocks
  std::int64_t sums_ = 0;              // how many of dscale and dbias are wanted
  const FloatRows<T> rows_;
  std::uint64_t rooms_at_;  // offset of the rooms in scratch, behind the blocks' sums
};
}  // namespace

KernelPtr make_normalization(const KernelRequest &request, int team_size) {
  return make_by_float<NormalizationKernel>(request, request.inputs.at(0), team_size);
}

KernelPtr make_normalization_grad(const KernelRequest &request, int team_size) {
  return make_by_float<NormalizationGradKernel>(request, request.inputs.at(0), team_size);
}

}  // namespace protrain::backend::cpu
