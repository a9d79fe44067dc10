// LossScale, SquaredNorm, GlobalNorm, ScaledNorm and GradientScale. Squares are summed in double, first in parts of
// fixed length, then over the parts in a fixed tree. The bits depend on the number of elements alone.
#include <algorithm>

#include "backend/cuda/columns.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

namespace {
constexpr std::int64_t kPart = kEmulated ? 1 << 10 : 16 << 10;

// Returns the sum of the squares of `count` elements, which the block's threads read in packs. Only the last few
// elements may be in no whole pack.
template <typename T>
__device__ double sum_of_squares(const T *x, std::int64_t count) {
  constexpr int kWidth = kWide<T>;
  const auto squared = [](T element) {
    const auto value = static_cast<double>(widened(element));
    return value * value;
  };
  double sum = 0;
  for (std::int64_t p = threadIdx.x; p < count / kWidth; p += blockDim.x) {
    const Pack<T, kWidth> pack = load<kWidth>(x + p * kWidth);
    PROTRAIN_UNROLL
    for (int i = 0; i < kWidth; ++i) sum += squared(pack.at[i]);
  }
  const std::int64_t rest = count / kWidth * kWidth + threadIdx.x;
  if (rest < count) sum += squared(x[rest]);
  return block_fold<Plus>(sum);
}

template <typename T>
__global__ void squares_kernel(const T *x, std::int64_t count, double *sums) {
  const std::int64_t first = blockIdx.x * kPart, rest = count - first;
  const double sum = sum_of_squares(x + first, rest < kPart ? rest : kPart);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void total_kernel(const double *sums, std::int64_t count, double *total) {
  const auto sum = fold_terms<Plus, double>(count, [&](std::int64_t i) { return sums[i]; });
  if (threadIdx.x == 0) *total = sum;
}

// The tensors of one launch: as many as fit into a kernel's arguments. Each has at most one part, and a block of its
// own.
constexpr int kTensors = 64;
template <typename T>
struct Tensors {
  const T *at[kTensors];
  std::int64_t count[kTensors];
  double *sum[kTensors];
};
template <typename T>
__global__ void small_squares_kernel(Tensors<T> tensors) {
  const double sum = sum_of_squares(tensors.at[blockIdx.x], tensors.count[blockIdx.x]);
  if (threadIdx.x == 0) *tensors.sum[blockIdx.x] = sum;
}

template <typename T>
class SquaredNorm : public CudaKernel {
 public:
  explicit SquaredNorm(const KernelRequest &request) {
    for (const graph::Type &type : request.inputs) {
      require_dtype(request, type, request.inputs[0].dtype);
      elements_.push_back(element_count(type.shape));
      if (elements_.back() > kPart)
        scratch_bytes = std::max(scratch_bytes, parts_of(elements_.back()) * sizeof(double));
    }
  }

  void run(Stream stream, const Launch &launch) override {
    Tensors<T> small{};
    int count = 0;
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      auto *to = optional_output<double>(launch, i);
      if (to == nullptr) continue;
      if (elements_[i] > kPart) {
        run_large(stream, input<T>(launch, i), elements_[i], static_cast<double *>(launch.scratch), to);
        continue;
      }
      small.at[count] = input<T>(launch, i);
      small.count[count] = elements_[i];
      small.sum[count] = to;
      if (++count < kTensors) continue;
      cuda::launch(stream, small_squares_kernel<T>, {count}, small);
      count = 0;
    }
    cuda::launch(stream, small_squares_kernel<T>, {count}, small);
  }

 private:
  static std::uint64_t parts_of(std::int64_t elements) {
    return static_cast<std::uint64_t>(divided_up(elements, kPart));
  }
  static void run_large(Stream stream, const T *x, std::int64_t elements, double *sums, double *to) {
    const auto parts = static_cast<std::int64_t>(parts_of(elements));
    cuda::launch(stream, squares_kernel<T>, {parts}, x, elements, sums);
    cuda::launch(stream, total_kernel, {1}, static_cast<const double *>(sums), parts, to);
  }

  std::vector<std::int64_t> elements_;  // of each tensor
};

// The scalars of one launch: as many as fit into a kernel's arguments.
constexpr int kScalars = 256;
struct Scalars {
  const double *at[kScalars];
};

__global__ void add_scalars_kernel(Scalars scalars, int count, bool first, bool last, double *to) {
  __shared__ double values[kScalars];
  if (static_cast<int>(threadIdx.x) < count) values[threadIdx.x] = *scalars.at[threadIdx.x];
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = first ? 0 : *to;
  for (int i = 0; i < count; ++i) sum += values[i];
  *to = last ? sqrt(sum) : sum;
}

class GlobalNorm : public CudaKernel {
 public:
  explicit GlobalNorm(const KernelRequest &request) {
    for (const graph::Type &type : request.inputs) require_dtype(request, type, DType::f64);
  }

  void run(Stream stream, const Launch &launch) override {
    const std::size_t count = launch.inputs.size();
    for (std::size_t first = 0; first == 0 || first < count; first += kScalars) {
      Scalars scalars{};
      const std::size_t size = std::min<std::size_t>(kScalars, count - first);
      for (std::size_t i = 0; i < size; ++i) scalars.at[i] = input<double>(launch, first + i);
      cuda::launch(stream, add_scalars_kernel, {1, kScalars}, scalars, static_cast<int>(size), first == 0,
                   first + size == count, output<double>(launch, 0));
    }
  }
};

class LossScale : public CudaKernel {
 public:
  void run(Stream stream, const Launch &launch) override {
    double *to = output<double>(launch, 0);
    each(stream, 1, [to, scalars = launch.scalars] __device__(std::int64_t) { *to = scalars->loss_scale; });
  }
};

class ScaledNorm : public CudaKernel {
 public:
  explicit ScaledNorm(const KernelRequest &request) {
    for (const graph::Type &type : request.inputs) require_dtype(request, type, DType::f64);
  }

  void run(Stream stream, const Launch &launch) override {
    const double *norm = input<double>(launch, 0), *weights = input<double>(launch, 1);
    double *to = output<double>(launch, 0);
    each(stream, 1, [norm, weights, to] __device__(std::int64_t) { *to = *norm / *weights; });
  }
};

class GradientScale : public CudaKernel {
 public:
  explicit GradientScale(const KernelRequest &request) : max_norm_(request.node.attributes.real("max_norm", 0)) {
    for (std::size_t i = 0; i < request.inputs.size(); ++i)
      if (has_input(request, i)) require_dtype(request, request.inputs[i], DType::f64);
  }

  void run(Stream stream, const Launch &launch) override {
    const double *norm = input<double>(launch, 0), *weights = optional_input<double>(launch, 1);
    float *to = output<float>(launch, 0);
    each(stream, 1, [norm, weights, to, max_norm = max_norm_] __device__(std::int64_t) {
      double scale = weights != nullptr ? 1 / *weights : 1;
      const double most = max_norm / (*norm + 1e-6);
      if (max_norm > 0) scale *= most < 1.0 ? most : 1.0;
      *to = static_cast<float>(scale);
    });
  }

 private:
  const double max_norm_;
};
}  // namespace

KernelPtr make_loss_scale(const KernelRequest &, DeviceState &) { return std::make_unique<LossScale>(); }

KernelPtr make_squared_norm(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<SquaredNorm<T>>(request); });
}

KernelPtr make_global_norm(const KernelRequest &request, DeviceState &) {
  return std::make_unique<GlobalNorm>(request);
}

KernelPtr make_scaled_norm(const KernelRequest &request, DeviceState &) {
  return std::make_unique<ScaledNorm>(request);
}

KernelPtr make_gradient_scale(const KernelRequest &request, DeviceState &) {
  return std::make_unique<GradientScale>(request);
}

}  // namespace protrain::backend::cuda
