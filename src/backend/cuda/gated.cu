// Gated: y = f(g) u, where f is an activation. Its gradients are dg = dy u f'(g) and du = dy f(g).
#include "backend/common/activation.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
template <typename F, typename T>
__global__ void gated_kernel(const T *g, const T *u, T *y, std::int64_t count) {
  for_packs<kPackOf<T>>(count, [&](std::int64_t first, auto width) {
    constexpr int n = decltype(width)::value;
    const Pack<T, n> gate = load<n>(g + first), other = load<n>(u + first);
    store<n>(y + first, rounded_pack<T, n>([&](int j) {
               return Formula<F, T>::value(widened(gate.at[j]), {}) * widened(other.at[j]);
             }));
  });
}

// Computes the gradients dg and du of Gated. Either is nullptr if it is not wanted.
template <typename F, typename T>
__global__ void grad_kernel(const T *dy, const T *g, const T *u, T *dg, T *du, std::int64_t count) {
  for_packs<kPackOf<T>>(count, [&](std::int64_t first, auto width) {
    constexpr int n = decltype(width)::value;
    const Pack<T, n> upstream = load<n>(dy + first), gate = load<n>(g + first), other = load<n>(u + first);
    const auto to_gate = rounded_pack<T, n>([&](int j) {
      return widened(upstream.at[j]) * widened(other.at[j]) * Formula<F, T>::slope(widened(gate.at[j]), {});
    });
    const auto to_other = rounded_pack<T, n>(
        [&](int j) { return Formula<F, T>::value(widened(gate.at[j]), {}) * widened(upstream.at[j]); });
    if (dg != nullptr) store<n>(dg + first, to_gate);
    if (du != nullptr) store<n>(du + first, to_other);
  });
}

template <typename F, typename T>
class Gated : public CudaKernel {
 public:
  explicit Gated(const KernelRequest &request) : count_(element_count(request.inputs[0].shape)) {}

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, gated_kernel<F, T>, pack_grid(count_, kPackOf<T>), input<T>(launch, 0), input<T>(launch, 1),
                 output<T>(launch, 0), count_);
  }

 private:
  const std::int64_t count_;
};

template <typename F, typename T>
class GatedGrad : public CudaKernel {
 public:
  explicit GatedGrad(const KernelRequest &request) : count_(element_count(request.inputs[0].shape)) {}

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, grad_kernel<F, T>, pack_grid(count_, kPackOf<T>), input<T>(launch, 0), input<T>(launch, 1),
                 input<T>(launch, 2), output<T>(launch, 0), output<T>(launch, 1), count_);
  }

 private:
  const std::int64_t count_;
};

}  // namespace

KernelPtr make_gated(const KernelRequest &request, DeviceState &) {
  for (const graph::Type &operand : request.inputs) require_dtype(request, operand, request.inputs[0].dtype);
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) {
    return by_activation(request, [&]<typename F>(F) -> KernelPtr {
      if (request.node.op == "Gated") return std::make_unique<Gated<F, T>>(request);
      return std::make_unique<GatedGrad<F, T>>(request);
    });
  });
}

}  // namespace protrain::backend::cuda
