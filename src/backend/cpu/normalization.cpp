// LayerNormalization and RMSNormalization, and their gradients. Tensors are seen as (rows, width). Rows are shared out;
// gradients of scale and bias are summed over blocks of rows fixed by the shape, then over the blocks in order.
#include <algorithm>
#include <cmath>

#include "backend/axes.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/lanes.h"
#include "base/shape.h"

namespace protrain::backend {

namespace {
void require_scale(const KernelRequest &request, std::size_t scale, const NormalizedRows &dims) {
  const std::int64_t scales = element_count(request.inputs.at(scale).shape);
  require(scales == dims.width, Code::unsupported, subject(request),
          "a scale of {} elements for rows of {}: the cpu wants one for each", scales, dims.width);
}

struct Moments {
  float mean = 0, inverse = 0;  // of a row; inverse: 1 / standard deviation, or 1 / root mean square
};

template <typename T, bool centered>
PROTRAIN_INLINE Moments moments(const T *x, std::int64_t width, float epsilon) {
  const float count = static_cast<float>(width);
  const float mean = centered ? lane_sum(width, [x](std::int64_t i) { return widened(x[i]); }) / count : 0;
  const float squares = lane_sum(width, [x, mean](std::int64_t i) {
    const float distance = widened(x[i]) - mean;
    return distance * distance;
  });
  return {mean, 1.0f / std::sqrt(squares / count + epsilon)};
}

template <typename T>
struct RowOperands {
  const T *x, *scale, *bias;  // bias may be nullptr
  T *y;
};

template <typename T>
struct GradOperands {
  const T *dy, *x, *scale;
  Moments moments;
  T *dx;
  float *dscale, *dbias;  // any of the three may be nullptr; these two are added to
};

template <typename T, bool centered>
struct Row {
  PROTRAIN_CLONES static Moments normalize(const RowOperands<T> &row, std::int64_t width, float epsilon) {
    const auto [x, scale, bias, y] = row;
    const auto [mean, inverse] = moments<T, centered>(x, width, epsilon);
    if (bias) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i)
        y[i] = narrowed<T>((widened(x[i]) - mean) * inverse * widened(scale[i]) + widened(bias[i]));
    } else {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i) y[i] = narrowed<T>((widened(x[i]) - mean) * inverse * widened(scale[i]));
    }
    return {mean, inverse};
  }

  // With n = (x - mean) * inverse and g = dy * scale: dx = inverse * (g - mean(g) - n * mean(g n)), dscale += dy * n,
  // dbias += dy. Without centering, mean(g) is left out.
  PROTRAIN_CLONES static void grad(const GradOperands<T> &row, std::int64_t width) {
    const auto [dy, x, scale, m, dx, dscale, dbias] = row;
    const float mean = m.mean, inverse = m.inverse, count = static_cast<float>(width);
    const auto g = [dy, scale](std::int64_t i) { return widened(dy[i]) * widened(scale[i]); };
    const auto n = [x, mean, inverse](std::int64_t i) { return (widened(x[i]) - mean) * inverse; };
    if (dx) {
      const float sum = centered ? lane_sum(width, g) / count : 0;
      const float dot = lane_sum(width, [g, n](std::int64_t i) { return g(i) * n(i); }) / count;
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i) dx[i] = narrowed<T>(inverse * (g(i) - sum - n(i) * dot));
    }
    if (dscale) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i) dscale[i] += widened(dy[i]) * n(i);
    }
    if (dbias) {
#pragma GCC ivdep
      for (std::int64_t i = 0; i < width; ++i) dbias[i] += widened(dy[i]);
    }
  }
};

PROTRAIN_CLONES void add(const float *x, float *into, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) into[i] += x[i];
}

template <typename T>
class NormalizationKernel : public CpuKernel {
 public:
  explicit NormalizationKernel(const KernelRequest &request)
      : centered_(request.node.op == "LayerNormalization"),
        dims_(request, request.inputs.at(0).shape),
        epsilon_(static_cast<float>(request.node.attributes.real("epsilon", 1e-5))),
        has_bias_(centered_ && has_input(request, 2)) {
    require_scale(request, 1, dims_);
    for (const graph::Type &operand : request.inputs)
      if (operand.dtype != DType::none) require_dtype(request, operand, request.inputs[0].dtype);
  }

  void run(Member &member, const Launch &launch) override {
    const T *x = input<T>(launch, 0), *scale = input<T>(launch, 1), *bias = has_bias_ ? input<T>(launch, 2) : nullptr;
    T *y = output<T>(launch, 0);
    float *mean = centered_ ? optional_output<float>(launch, 1) : nullptr;
    float *inverse = optional_output<float>(launch, centered_ ? 2 : 1);
    const Range mine = share(dims_.rows, 1, member);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const RowOperands<T> row{x + i * dims_.width, scale, bias, y + i * dims_.width};
      const Moments m = (centered_ ? Row<T, true>::normalize : Row<T, false>::normalize)(row, dims_.width, epsilon_);
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

template <typename T>
class NormalizationGradKernel : public CpuKernel {
 public:
  explicit NormalizationGradKernel(const KernelRequest &request)
      : centered_(request.node.op == "LayerNormalizationGrad"),
        dims_(request, request.inputs.at(1).shape),
        block_(std::max(kLeastBlock, (dims_.rows + kMostBlocks - 1) / kMostBlocks)),
        blocks_(std::max<std::int64_t>((dims_.rows + block_ - 1) / block_, 1)) {
    require_scale(request, 2, dims_);
    for (std::size_t i = 0; i < request.inputs.size(); ++i)
      require_dtype(request, request.inputs[i], i < 3 ? request.inputs[0].dtype : DType::f32);
    for (std::size_t i : {1, 2})
      if (has_output(request, i)) ++sums_;
    const std::uint64_t floats =
        checked_multiply(static_cast<std::uint64_t>(blocks_ * sums_), static_cast<std::uint64_t>(dims_.width));
    scratch_bytes = checked_multiply(floats, sizeof(float));
  }

  void run(Member &member, const Launch &launch) override {
    const std::int64_t width = dims_.width;
    T *dscale = optional_output<T>(launch, 1), *dbias = centered_ ? optional_output<T>(launch, 2) : nullptr;
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
    const T *dy = input<T>(launch, 0), *x = input<T>(launch, 1), *scale = input<T>(launch, 2);
    const float *mean = centered_ ? input<float>(launch, 3) : nullptr,
                *inverse = input<float>(launch, centered_ ? 4 : 3);
    T *dx = optional_output<T>(launch, 0);
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      const std::int64_t at = i * dims_.width;
      const Moments m{mean ? mean[i] : 0, inverse[i]};
      const GradOperands<T> row{dy + at, x + at, scale, m, dx ? dx + at : nullptr, dscale, dbias};
      (centered_ ? Row<T, true>::grad : Row<T, false>::grad)(row, dims_.width);
    }
  }

  // In the order of blocks, in the place of the first.
  void sum_blocks(float *partial, Range columns, T *to) const {
    float *total = partial + columns.begin;
    for (std::int64_t b = 1; b < blocks_; ++b) add(total + b * sums_ * dims_.width, total, columns.size());
    narrow(total, to + columns.begin, columns.size());
  }

  const bool centered_;
  const NormalizedRows dims_;
  const std::int64_t block_, blocks_;  // rows in a block; blocks
  std::int64_t sums_ = 0;              // of dscale and dbias, those that are wanted
};
}  // namespace

std::unique_ptr<CpuKernel> make_normalization(const KernelRequest &request, int) {
  return make_by_float<NormalizationKernel>(request, request.inputs.at(0));
}

std::unique_ptr<CpuKernel> make_normalization_grad(const KernelRequest &request, int) {
  return make_by_float<NormalizationGradKernel>(request, request.inputs.at(0));
}

}  // namespace protrain::backend
