// Dropout, and its gradient, which is the same operator on dy.
#include "backend/cuda/draws.h"

namespace protrain::backend::cuda {

namespace {
struct Rule {
  std::uint32_t drop_below;
  float scale;
};

template <typename T>
__global__ void dropout_kernel(const T *x, T *y, bool *mask, Rule rule, Draws draws, const StepScalars *scalars) {
  draws.each(*scalars, [&](std::int64_t at, std::uint32_t word) {
    const bool kept = word >= rule.drop_below;
    if (y != nullptr) y[at] = kept ? narrowed<T>(widened(x[at]) * rule.scale) : T{};
    if (mask != nullptr) mask[at] = kept;
  });
}

template <typename T>
class Dropout : public CudaKernel {
 public:
  explicit Dropout(const KernelRequest &request) : draws_(request, element_count(request.inputs[0].shape)) {
    const auto ratio = static_cast<float>(request.node.attributes.real("ratio", 0.5));
    rule_ = {.drop_below = arith::drop_below(ratio), .scale = arith::keep_scale(ratio)};
  }

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, dropout_kernel<T>, grid_of(draws_.drawn), input<T>(launch, 0), optional_output<T>(launch, 0),
                 optional_output<bool>(launch, 1), rule_, draws_, launch.scalars);
  }

 private:
  const Draws draws_;
  Rule rule_;
};
}  // namespace

KernelPtr make_dropout(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<Dropout<T>>(request); });
}

}  // namespace protrain::backend::cuda
