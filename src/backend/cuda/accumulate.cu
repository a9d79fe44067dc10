// Accumulate, SumParts, CountTargets and CountedLoss.
#include "backend/cuda/elementwise.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

namespace {
// The parts that Accumulate or SumParts adds up, and their weights. All parts lie in one input x, `stride` elements
// apart.
template <typename T>
struct Parts {
  const T *x;
  const double *weight;  // nullptr: 1
  std::int64_t count, stride;
  bool weighs_each;  // each part has a weight of its own
};

// Returns the weighted sum of element i of all parts: each part's element is multiplied by the part's weight. If
// `first` is false, the result includes the previous sum[i].
template <typename T, typename S>
__device__ S weighted_sum(const Parts<T> &parts, std::int64_t i, const S *sum, bool first) {
  constexpr int kAhead = 4;  // parts loaded at a time; a thread waits for memory once for all of them
  S total = first ? S{0} : sum[i];
  PROTRAIN_KEEP_LOOP for (std::int64_t begin = 0; begin < parts.count; begin += kAhead) {
    T x[kAhead];
    PROTRAIN_UNROLL
    for (int k = 0; k < kAhead; ++k) x[k] = begin + k < parts.count ? parts.x[(begin + k) * parts.stride + i] : T{};
    PROTRAIN_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if (begin + k >= parts.count) break;
      const S factor = parts.weight == nullptr ? S{1} : static_cast<S>(parts.weight[parts.weighs_each ? begin + k : 0]);
      if (factor == 0) continue;  // the part is left out, even if it is NaN
      const S value = operand(x[k]);
      if (first && begin + k == 0)
        total = factor * value;
      else if constexpr (std::is_same_v<S, float>)
        total = arith::fma(factor, value, total);
      else
        total += factor * value;
    }
  }
  return total;
}

// Accumulate adds the parts of x, each times a weight, to a sum of type S. The sum is both inputs[0] and outputs[0],
// and the first micro-batch overwrites it. SumParts has no sum among its inputs, and always overwrites outputs[0].
template <typename T, typename S>
class Accumulate : public CudaKernel {
 public:
  explicit Accumulate(const KernelRequest &request)
      : begins_(request.node.op == "SumParts"),
        x_(begins_ ? 0 : 1),
        elements_(element_count(request.outputs.at(0).shape)),
        parts_(request.node.attributes.integer("parts", 1)),
        stride_(element_count(request.inputs.at(x_).shape) / parts_),
        weighs_each_(has_input(request, x_ + 1) && !request.inputs[x_ + 1].shape.empty()) {}

  void run(Stream stream, const Launch &launch) override {
    const Parts<T> parts{input<T>(launch, x_), optional_input<double>(launch, x_ + 1), parts_, stride_, weighs_each_};
    S *sum = output<S>(launch, 0);
    each(stream, elements_, [parts, sum, begins = begins_, scalars = launch.scalars] __device__(std::int64_t i) {
      sum[i] = weighted_sum(parts, i, sum, begins || scalars->micro_batch == 0);
    });
  }

 private:
  const bool begins_;    // the parts begin a new sum (SumParts)
  const std::size_t x_;  // number of the input x
  const std::int64_t elements_, parts_, stride_;
  const bool weighs_each_;
};

template <typename Label>
__global__ void count_kernel(const Label *labels, const float *weights, std::int64_t rows, bool ignores,
                             std::int64_t ignored, double *to) {
  const auto count = fold_terms<Plus, double>(rows, [&](std::int64_t i) {
    if (ignores && labels[i] == ignored) return 0.0;
    return weights != nullptr ? static_cast<double>(weights[i]) : 1.0;
  });
  if (threadIdx.x == 0) *to = count;
}

template <typename Label>
class CountTargets : public CudaKernel {
 public:
  explicit CountTargets(const KernelRequest &request)
      : rows_(element_count(request.inputs.at(0).shape)),
        ignores_(request.node.attributes.has("ignore_index")),
        ignored_(request.node.attributes.integer("ignore_index", 0)) {}

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, count_kernel<Label>, {1}, input<Label>(launch, 0), optional_input<float>(launch, 1), rows_,
                 ignores_, ignored_, output<double>(launch, 0));
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
    each(stream, 1, [loss, weight, to] __device__(std::int64_t) { *to = *weight != 0 ? *loss : 0.0f; });
  }
};
}  // namespace

KernelPtr make_accumulate(const KernelRequest &request, DeviceState &) {
  if (request.outputs.at(0).dtype == DType::f64) return std::make_unique<Accumulate<double, double>>(request);
  require_dtype(request, request.outputs[0], DType::f32);
  return by_float(request, request.inputs.at(request.node.op == "SumParts" ? 0 : 1),
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
