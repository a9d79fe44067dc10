// LayerNormalization and RMSNormalization, and their gradients. Tensors are seen as (rows, width). Rows are shared out;
// gradients of scale and bias are summed over blocks of rows fixed by the shape, then over the blocks in order.
#include <algorithm>
#include <cmath>

#include "backend/axes.h"
#include "backend/cpu/kernel.h"
#include "backend/cpu/lanes.h"
#include "base/shape.h"

namespace protrain::backend {

namespace {
void require_operands(const KernelRequest &request, std::size_t scale, const NormalizedRows &dims) {
  for (const graph::Type &operand : request.inputs)
    if (operand.dtype != DType::none) require_dtype(request, operand, DType::f32);
  const std::int64_t scales = element_count(request.inputs.at(scale).shape);
  require(scales == dims.width, Code::unsupported, subject(request),
          "a scale of {} elements for rows of {}: the cpu wants one for each", scales, dims.width);
}

struct Moments {
  float mean = 0, inverse = 0;  // of a row; inverse: 1 / standard deviation, or 1 / root mean square
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
  float *y;
};

template <bool centered>
PROTRAIN_INLINE Moments normalize(const RowOperands &row, std::int64_t width, float epsilon) {
  const auto [x, scale, bias, y] = row;
  const Moments m = moments<centered>(x, width, epsilon);
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
  const float *dy, *x, *scale;
  Moments moments;
  float *dx, *dscale, *dbias;  // any may be nullptr; the last two are added to
};

// With n = (x - mean) * inverse and g = dy * scale: dx = inverse * (g - mean(g) - n * mean(g n)), dscale += dy * n,
// dbias += dy. Without centering, mean(g) is left out.
template <bool centered>
PROTRAIN_INLINE void normalize_grad(const GradOperands &row, std::int64_t width) {
  const auto [dy, x, scale, m, dx, dscale, dbias] = row;
  const float mean = m.mean, inverse = m.inverse, count = static_cast<float>(width);
  if (dx) {
    const float sum = centered ? lane_sum(width, [dy, scale](std::int64_t i) { return dy[i] * scale[i]; }) / count : 0;
    const float dot = lane_sum(width, [dy, scale, x, mean, inverse](
                                          std::int64_t i) { return dy[i] * scale[i] * ((x[i] - mean) * inverse); }) /
                      count;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dx[i] = inverse * (dy[i] * scale[i] - sum - (x[i] - mean) * inverse * dot);
  }
  if (dscale) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dscale[i] += dy[i] * ((x[i] - mean) * inverse);
  }
  if (dbias) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < width; ++i) dbias[i] += dy[i];
  }
}

PROTRAIN_CLONES void layer_row_grad(const GradOperands &row, std::int64_t width) { normalize_grad<true>(row, width); }
PROTRAIN_CLONES void rms_row_grad(const GradOperands &row, std::int64_t width) { normalize_grad<false>(row, width); }

PROTRAIN_CLONES void add(const float *x, float *into, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) into[i] += x[i];
}

class NormalizationKernel : public CpuKernel {
 public:
  explicit NormalizationKernel(const KernelRequest &request)
      : centered_(request.node.op == "LayerNormalization"),
        dims_(request, request.inputs.at(0).shape),
        epsilon_(static_cast<float>(request.node.attributes.real("epsilon", 1e-5))),
        has_bias_(centered_ && has_input(request, 2)) {
    require_operands(request, 1, dims_);
  }

  void run(Member &member, const Launch &launch) override {
    const float *x = input<float>(launch, 0), *scale = input<float>(launch, 1);
    const float *bias = has_bias_ ? input<float>(launch, 2) : nullptr;
    float *y = output<float>(launch, 0);
    float *mean = centered_ ? optional_output<float>(launch, 1) : nullptr;
    float *inverse = optional_output<float>(launch, centered_ ? 2 : 1);
    const Range mine = share(dims_.rows, 1, member);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const RowOperands row{x + i * dims_.width, scale, bias, y + i * dims_.width};
      const Moments m = (centered_ ? layer_row : rms_row)(row, dims_.width, epsilon_);
      if (mean) mean[i] = m.mean;
      if (inverse) inverse[i] = m.inverse;
    }
  }

 private:
  const bool centered_;
  const NormalizedRows dims_;
  const float epsilon_;
  const bool has_bias_;
};

class NormalizationGradKernel : public CpuKernel {
 public:
  explicit NormalizationGradKernel(const KernelRequest &request)
      : centered_(request.node.op == "LayerNormalizationGrad"),
        dims_(request, request.inputs.at(1).shape),
        block_(std::max(kLeastBlock, (dims_.rows + kMostBlocks - 1) / kMostBlocks)),
        blocks_((dims_.rows + block_ - 1) / block_) {
    require_operands(request, 2, dims_);
    for (std::size_t i : {1, 2})
      if (has_output(request, i)) ++sums_;
    const std::uint64_t floats =
        checked_multiply(static_cast<std::uint64_t>(blocks_ * sums_), static_cast<std::uint64_t>(dims_.width));
    scratch_bytes = checked_multiply(floats, sizeof(float));
  }

  void run(Member &member, const Launch &launch) override {
    const std::int64_t width = dims_.width;
    float *dscale = optional_output<float>(launch, 1), *dbias = centered_ ? optional_output<float>(launch, 2) : nullptr;
    float *partial = static_cast<float *>(launch.scratch);  // (blocks, sums, width)
    const Range mine = share(blocks_, 1, member);
    for (std::int64_t b = mine.begin; b < mine.end; ++b) {
      float *own = partial + b * sums_ * width;
      std::fill_n(own, sums_ * width, 0.0f);
      float *own_dscale = dscale ? own : nullptr, *own_dbias = dbias ? own + (sums_ - 1) * width : nullptr;
      run_rows({b * block_, std::min((b + 1) * block_, dims_.rows)}, launch, own_dscale, own_dbias);
    }
    if (sums_ == 0) return;
    member.barrier();
    const Range columns = share(width, kLanes, member);
    if (dscale) sum_blocks(partial, columns, dscale);
    if (dbias) sum_blocks(partial + (sums_ - 1) * width, columns, dbias);
  }

 private:
  static constexpr std::int64_t kLeastBlock = 32, kMostBlocks = 128;

  void run_rows(Range rows, const Launch &launch, float *dscale, float *dbias) const {
    const float *dy = input<float>(launch, 0), *x = input<float>(launch, 1), *scale = input<float>(launch, 2);
    const float *mean = centered_ ? input<float>(launch, 3) : nullptr,
                *inverse = input<float>(launch, centered_ ? 4 : 3);
    float *dx = optional_output<float>(launch, 0);
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      const std::int64_t at = i * dims_.width;
      const Moments m{mean ? mean[i] : 0, inverse[i]};
      const GradOperands row{dy + at, x + at, scale, m, dx ? dx + at : nullptr, dscale, dbias};
      (centered_ ? layer_row_grad : rms_row_grad)(row, dims_.width);
    }
  }

  void sum_blocks(const float *partial, Range columns, float *to) const {
    std::fill(to + columns.begin, to + columns.end, 0.0f);
    for (std::int64_t b = 0; b < blocks_; ++b)
      add(partial + b * sums_ * dims_.width + columns.begin, to + columns.begin, columns.size());
  }

  const bool centered_;
  const NormalizedRows dims_;
  const std::int64_t block_, blocks_;  // rows in a block; blocks
  std::int64_t sums_ = 0;              // of dscale and dbias, those that are wanted
};
}  // namespace

std::unique_ptr<CpuKernel> make_normalization(const KernelRequest &request, int) {
  return std::make_unique<NormalizationKernel>(request);
}

std::unique_ptr<CpuKernel> make_normalization_grad(const KernelRequest &request, int) {
  return std::make_unique<NormalizationGradKernel>(request);
}

}  // namespace protrain::backend
