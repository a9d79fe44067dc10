// Softmax, LogSoftmax and their gradients, with a block for each line along the axis.
#include "arith/math.h"
#include "backend/common/axes.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/fold.h"

namespace protrain::backend::cuda {

namespace {
template <typename T, bool kLog>
__global__ void softmax_kernel(AxisLines lines, const T *from, T *to) {
  const T *x = from + lines.begin(blockIdx.x);
  T *y = to + lines.begin(blockIdx.x);
  const auto element = [&](std::int64_t i) { return widened(x[i * lines.inner]); };
  const auto largest = fold_terms<Larger, float>(lines.length, element);
  const auto sum =
      fold_terms<Plus, float>(lines.length, [&](std::int64_t i) { return arith::exp(element(i) - largest); });
  const float factor = kLog ? arith::log(sum) : 1.0f / sum;
  for (std::int64_t i = threadIdx.x; i < lines.length; i += blockDim.x)
    y[i * lines.inner] = narrowed<T>(kLog ? element(i) - largest - factor : arith::exp(element(i) - largest) * factor);
}

template <typename T, bool kLog>
__global__ void softmax_grad_kernel(AxisLines lines, const T *upstream, const T *result, T *to) {
  const std::int64_t begin = lines.begin(blockIdx.x);
  const T *dy = upstream + begin, *y = result + begin;
  const auto sum = fold_terms<Plus, float>(lines.length, [&](std::int64_t i) {
    return kLog ? widened(dy[i * lines.inner]) : widened(dy[i * lines.inner]) * widened(y[i * lines.inner]);
  });
  for (std::int64_t i = threadIdx.x; i < lines.length; i += blockDim.x) {
    const float g = widened(dy[i * lines.inner]), v = widened(y[i * lines.inner]);
    to[begin + i * lines.inner] = narrowed<T>(kLog ? g - arith::exp(v) * sum : (g - sum) * v);
  }
}

template <typename T, bool kLog>
class Softmax : public CudaKernel {
 public:
  explicit Softmax(const KernelRequest &request) : lines_(request, request.outputs[0].shape, -1) {}
  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, softmax_kernel<T, kLog>, {lines_.count, row_threads(lines_.length)}, lines_,
                 input<T>(launch, 0), output<T>(launch, 0));
  }

 private:
  const AxisLines lines_;
};

template <typename T, bool kLog>
class SoftmaxGrad : public CudaKernel {
 public:
  explicit SoftmaxGrad(const KernelRequest &request) : lines_(request, request.outputs[0].shape, -1) {}
  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, softmax_grad_kernel<T, kLog>, {lines_.count, row_threads(lines_.length)}, lines_,
                 input<T>(launch, 0), input<T>(launch, 1), output<T>(launch, 0));
  }

 private:
  const AxisLines lines_;
};
}  // namespace

KernelPtr make_softmax(const KernelRequest &request, DeviceState &) {
  const bool log = request.node.op == "LogSoftmax";
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) -> KernelPtr {
    if (log) return std::make_unique<Softmax<T, true>>(request);
    return std::make_unique<Softmax<T, false>>(request);
  });
}

KernelPtr make_softmax_grad(const KernelRequest &request, DeviceState &) {
  const bool log = request.node.op == "LogSoftmaxGrad";
  for (const graph::Type &operand : request.inputs) require_dtype(request, operand, request.inputs[0].dtype);
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) -> KernelPtr {
    if (log) return std::make_unique<SoftmaxGrad<T, true>>(request);
    return std::make_unique<SoftmaxGrad<T, false>>(request);
  });
}

}  // namespace protrain::backend::cuda
