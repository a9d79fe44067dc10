// LayerNormalization and RMSNormalization, and their gradients. Tensors are seen as (rows, width), a block for each
// row; gradients of scale and bias are summed over parts of rows fixed by the shape, then over the parts in order.
#include <algorithm>

#include "backend/axes.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

namespace {
void require_scale(const KernelRequest &request, std::size_t scale, const NormalizedRows &dims) {
  const std::int64_t scales = element_count(request.inputs.at(scale).shape);
  require(scales == dims.width, Code::unsupported, subject(request),
          "a scale of {} elements for rows of {}: cuda wants one for each", scales, dims.width);
}

// Statistics: the mean, and 1 / standard deviation or 1 / root mean square, of each row; nullptr: not wanted.
template <typename T>
struct Operands {
  const T *x, *scale, *bias;  // bias may be nullptr
  T *y;                       // nullptr: not wanted
  float *mean, *inverse;
};

template <typename T, bool kCentered>
__global__ void normalize_kernel(NormalizedRows dims, float epsilon, Operands<T> o) {
  const T *x = o.x + blockIdx.x * dims.width;
  const auto count = static_cast<float>(dims.width);
  const float mean =
      kCentered ? fold_terms<Plus, float>(dims.width, [&](std::int64_t i) { return widened(x[i]); }) / count : 0.0f;
  const auto squares = fold_terms<Plus, float>(dims.width, [&](std::int64_t i) {
    const float distance = widened(x[i]) - mean;
    return distance * distance;
  });
  const float inverse = 1.0f / __builtin_sqrtf(squares / count + epsilon);
  for (std::int64_t i = threadIdx.x; o.y != nullptr && i < dims.width; i += blockDim.x) {
    const float normal = (widened(x[i]) - mean) * inverse * widened(o.scale[i]);
    o.y[blockIdx.x * dims.width + i] = narrowed<T>(o.bias != nullptr ? normal + widened(o.bias[i]) : normal);
  }
  if (threadIdx.x != 0) return;
  if (o.mean != nullptr) o.mean[blockIdx.x] = mean;
  if (o.inverse != nullptr) o.inverse[blockIdx.x] = inverse;
}

template <typename T>
struct GradOperands {
  const T *dy, *x, *scale;
  const float *mean, *inverse;  // mean nullptr: 0
};

// With n = (x - mean) * inverse and g = dy * scale: dx = inverse * (g - mean(g) - n * mean(g n)). Without centering,
// mean(g) is left out.
template <typename T, bool kCentered>
__global__ void normalize_grad_kernel(NormalizedRows dims, GradOperands<T> o, T *dx) {
  const std::int64_t begin = blockIdx.x * dims.width;
  const float mean = kCentered ? o.mean[blockIdx.x] : 0.0f, inverse = o.inverse[blockIdx.x];
  const auto count = static_cast<float>(dims.width);
  const auto normal = [&](std::int64_t i) { return (widened(o.x[begin + i]) - mean) * inverse; };
  const auto scaled = [&](std::int64_t i) { return widened(o.dy[begin + i]) * widened(o.scale[i]); };
  const float sum = kCentered ? fold_terms<Plus, float>(dims.width, scaled) / count : 0.0f;
  const float dot = fold_terms<Plus, float>(dims.width, [&](std::int64_t i) { return scaled(i) * normal(i); }) / count;
  for (std::int64_t i = threadIdx.x; i < dims.width; i += blockDim.x)
    dx[begin + i] = narrowed<T>(inverse * (scaled(i) - sum - normal(i) * dot));
}

// partial (2, parts, width): sums over a part's rows of dy * n, and of dy.
template <typename T>
__global__ void sums_kernel(NormalizedRows dims, GradOperands<T> o, std::int64_t part, std::int64_t parts,
                            float *partial) {
  for (std::int64_t at = thread_index(); at < parts * dims.width; at += thread_count()) {
    std::int64_t column = 0;
    const std::int64_t first = divide(at, dims.width, column) * part;
    const std::int64_t end = first + part < dims.rows ? first + part : dims.rows;
    float dscale = 0, dbias = 0;
    for (std::int64_t row = first; row < end; ++row) {
      const float dy = widened(o.dy[row * dims.width + column]), x = widened(o.x[row * dims.width + column]);
      dscale += dy * ((x - (o.mean != nullptr ? o.mean[row] : 0.0f)) * o.inverse[row]);
      dbias += dy;
    }
    partial[at] = dscale;
    partial[parts * dims.width + at] = dbias;
  }
}

template <typename T>
__global__ void join_kernel(std::int64_t width, std::int64_t parts, const float *partial, T *to) {
  for (std::int64_t column = thread_index(); column < width; column += thread_count()) {
    double sum = 0;
    for (std::int64_t p = 0; p < parts; ++p) sum += static_cast<double>(partial[p * width + column]);
    to[column] = narrowed<T>(static_cast<float>(sum));
  }
}

template <typename T, bool kCentered>
class Normalization : public CudaKernel {
 public:
  explicit Normalization(const KernelRequest &request)
      : dims_(request, request.inputs.at(0).shape),
        epsilon_(static_cast<float>(request.node.attributes.real("epsilon", 1e-5))) {
    require_scale(request, 1, dims_);
    for (const graph::Type &operand : request.inputs)
      if (operand.dtype != DType::none) require_dtype(request, operand, request.inputs[0].dtype);
  }

  void run(Stream stream, const Launch &launch) override {
    const Operands<T> operands{input<T>(launch, 0),
                               input<T>(launch, 1),
                               kCentered ? optional_input<T>(launch, 2) : nullptr,
                               optional_output<T>(launch, 0),
                               kCentered ? optional_output<float>(launch, 1) : nullptr,
                               optional_output<float>(launch, kCentered ? 2 : 1)};
    cuda::launch(stream, normalize_kernel<T, kCentered>, {dims_.rows, row_threads(dims_.width)}, dims_, epsilon_,
                 operands);
  }

 private:
  const NormalizedRows dims_;
  const float epsilon_;
};

template <typename T, bool kCentered>
class NormalizationGrad : public CudaKernel {
 public:
  explicit NormalizationGrad(const KernelRequest &request)
      : dims_(request, request.inputs.at(1).shape),
        part_(std::max(kLeastPart, divided_up(dims_.rows, kMostParts))),
        parts_(divided_up(dims_.rows, part_)) {
    require_scale(request, 2, dims_);
    for (std::size_t i : {0, 1, 2}) require_dtype(request, request.inputs[i], request.inputs[0].dtype);
    sums_ = has_output(request, 1) || (kCentered && has_output(request, 2));
    const std::uint64_t floats =
        checked_multiply(static_cast<std::uint64_t>(2 * parts_), static_cast<std::uint64_t>(dims_.width));
    if (sums_) scratch_bytes = checked_multiply(floats, sizeof(float));
  }

  void run(Stream stream, const Launch &launch) override {
    const GradOperands<T> operands{input<T>(launch, 0), input<T>(launch, 1), input<T>(launch, 2),
                                   kCentered ? input<float>(launch, 3) : nullptr,
                                   input<float>(launch, kCentered ? 4 : 3)};
    if (T *dx = optional_output<T>(launch, 0))
      cuda::launch(stream, normalize_grad_kernel<T, kCentered>, {dims_.rows, row_threads(dims_.width)}, dims_, operands,
                   dx);
    if (!sums_) return;
    auto *partial = static_cast<float *>(launch.scratch);
    cuda::launch(stream, sums_kernel<T>, grid_of(parts_ * dims_.width), dims_, operands, part_, parts_, partial);
    if (T *dscale = optional_output<T>(launch, 1)) join(stream, partial, dscale);
    if (T *dbias = kCentered ? optional_output<T>(launch, 2) : nullptr)
      join(stream, partial + parts_ * dims_.width, dbias);
  }

 private:
  static constexpr std::int64_t kLeastPart = 32, kMostParts = 256;

  void join(Stream stream, const float *partial, T *to) const {
    cuda::launch(stream, join_kernel<T>, grid_of(dims_.width), dims_.width, parts_, partial, to);
  }

  const NormalizedRows dims_;
  const std::int64_t part_, parts_;  // rows in a part; parts
  bool sums_;                        // of dscale or dbias, at least one is wanted
};
}  // namespace

Made make_normalization(const KernelRequest &request, Site &) {
  const bool centered = request.node.op == "LayerNormalization";
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) -> Made {
    if (centered) return std::make_unique<Normalization<T, true>>(request);
    return std::make_unique<Normalization<T, false>>(request);
  });
}

Made make_normalization_grad(const KernelRequest &request, Site &) {
  const bool centered = request.node.op == "LayerNormalizationGrad";
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) -> Made {
    if (centered) return std::make_unique<NormalizationGrad<T, true>>(request);
    return std::make_unique<NormalizationGrad<T, false>>(request);
  });
}

}  // namespace protrain::backend::cuda
