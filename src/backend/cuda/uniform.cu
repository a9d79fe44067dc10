// Uniform: random numbers in (0, 1).
#include "backend/cuda/draws.h"

namespace protrain::backend::cuda {

namespace {
__global__ void uniform_kernel(float *out, Draws draws, const StepScalars *scalars) {
  draws.each(*scalars, [&](std::int64_t at, std::uint32_t word) { out[at] = arith::uniform(word); });
}

class Uniform : public CudaKernel {
 public:
  explicit Uniform(const KernelRequest &request) : draws_(request, element_count(request.outputs.at(0).shape)) {}

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, uniform_kernel, grid_of(draws_.drawn), output<float>(launch, 0), draws_, launch.scalars);
  }

 private:
  const Draws draws_;
};
}  // namespace

KernelPtr make_uniform(const KernelRequest &request, DeviceState &) {
  require_dtype(request, request.outputs.at(0), DType::f32);
  return std::make_unique<Uniform>(request);
}

}  // namespace protrain::backend::cuda
