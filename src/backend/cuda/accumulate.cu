// Accumulate, CountTargets and CountedLoss.
#include "backend/cuda/elementwise.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

namespace {
// Adds x (inputs[1], of type T) times a weight to the sum (of type S), which is both inputs[0] and outputs[0]. The
// first micro-batch sets the sum.
template <typename T, typename S>
class Accumulate : public CudaKernel {
 public:
  explicit Accumulate(const KernelRequest &request) : elements_(element_count(request.inputs.at(0).shape)) {}

  void run(Stream stream, const Launch &launch) override {
    const T *x = input<T>(launch, 1);
    const auto *weight = optional_input<double>(launch, 2);
    S *sum = output<S>(launch, 0);
    each(stream, elements_, [x, weight, sum, scalars = launch.scalars] __device__(std::int64_t i) {
      const bool first = scalars->micro_batch == 0;
      const S factor = weight == nullptr ? S{1} : static_cast<S>(*weight);
      if (factor == 0) {  // x is left out, even if it is NaN
        if (first) sum[i] = 0;
        return;
      }
      const S value = operand(x[i]);
      if (first)
        sum[i] = factor * value;
      else if constexpr (std::is_same_v<S, float>)
        sum[i] = arith::fma(factor, value, sum[i]);
      else
        sum[i] += factor * value;
    });
  }

 private:
  const std::int64_t elements_;
};

template <typename Label>
__global__ void count_kernel(const Label *labels, std::int64_t rows, bool ignores, std::int64_t ignored, double *to) {
  const auto count =
      fold_terms<Plus, std::int64_t>(rows, [&](std::int64_t i) { return !ignores || labels[i] != ignored ? 1 : 0; });
  if (threadIdx.x == 0) *to = static_cast<double>(count);
}

template <typename Label>
class CountTargets : public CudaKernel {
 public:
  explicit CountTargets(const KernelRequest &request)
      : rows_(element_count(request.inputs.at(0).shape)),
        ignores_(request.node.attributes.has("ignore_index")),
        ignored_(request.node.attributes.integer("ignore_index", 0)) {}

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, count_kernel<Label>, {1}, input<Label>(launch, 0), rows_, ignores_, ignored_,
                 output<double>(launch, 0));
  }

 private:
  const std::int64_t rows_;
  const bool ignores_;
  const std::int64_t ignored_;
};

class CountedLoss : public CudaKernel {
 public:
  explicit CountedLoss(const KernelRequest &request) { require_dtype(request, request.inputs.at(0), DType::f32); }

  void run(Stream stream, const Launch &launch) override {
    const float *loss = input<float>(launch, 0);
    const double *weight = input<double>(launch, 1);
    float *to = output<float>(launch, 0);
    each(stream, 1, [loss, weight, to] __device__(std::int64_t) { *to = *weight > 0 ? *loss : 0.0f; });
  }
};
}  // namespace

KernelPtr make_accumulate(const KernelRequest &request, DeviceState &) {
  if (request.inputs.at(0).dtype == DType::f64) return std::make_unique<Accumulate<double, double>>(request);
  require_dtype(request, request.inputs[0], DType::f32);
  return by_float(request, request.inputs.at(1),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<Accumulate<T, float>>(request); });
}

KernelPtr make_count_targets(const KernelRequest &request, DeviceState &) {
  if (request.inputs.at(0).dtype == DType::i32) return std::make_unique<CountTargets<std::int32_t>>(request);
  require_dtype(request, request.inputs[0], DType::i64);
  return std::make_unique<CountTargets<std::int64_t>>(request);
}

KernelPtr make_counted_loss(const KernelRequest &request, DeviceState &) {
  return std::make_unique<CountedLoss>(request);
}

}  // namespace protrain::backend::cuda
