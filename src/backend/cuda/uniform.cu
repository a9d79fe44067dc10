// Uniform: random numbers in (0, 1). They are the CPU's: within a step an element's number depends only on its sample
// and on its position in the sample.
#include <algorithm>

#include "arith/random.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
struct Draws {
  std::uint64_t key;
  std::int64_t per_sample, quads;  // elements of a sample; its groups of four, drawn together
  std::int64_t drawn;              // groups of four in all samples
  bool samples;                    // each sample has its own numbers; else all elements are sample 0
};

__global__ void uniform_kernel(float *out, Draws draws, const StepScalars *scalars) {
  const arith::Stream numbers = arith::stream_of(scalars->seed, scalars->step, draws.key);
  const std::uint64_t first_sample = scalars->first_sample;
  for (std::int64_t i = thread_index(); i < draws.drawn; i += thread_count()) {
    std::int64_t quad = 0;
    const std::int64_t sample = divide(i, draws.quads, quad);
    const std::uint64_t number = draws.samples ? first_sample + static_cast<std::uint64_t>(sample) : 0;
    const arith::Words words = arith::numbers(numbers, number, static_cast<std::uint64_t>(quad));
    for (int j = 0; j < 4 && 4 * quad + j < draws.per_sample; ++j)
      out[sample * draws.per_sample + 4 * quad + j] = arith::uniform(words.word[j]);
  }
}

class Uniform : public CudaKernel {
 public:
  explicit Uniform(const KernelRequest &request) {
    const std::int64_t samples = request.node.attributes.integer("samples", 0);
    const std::int64_t count = element_count(request.outputs.at(0).shape);
    const std::int64_t per_sample = count / std::max<std::int64_t>(samples, 1);
    const std::int64_t quads = divided_up(per_sample, 4);
    draws_ = {.key = static_cast<std::uint64_t>(request.node.attributes.integer("key", 0)),
              .per_sample = per_sample,
              .quads = quads,
              .drawn = per_sample == 0 ? 0 : count / per_sample * quads,
              .samples = samples != 0};
  }

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, uniform_kernel, grid_of(draws_.drawn), output<float>(launch, 0), draws_, launch.scalars);
  }

 private:
  Draws draws_;
};
}  // namespace

KernelPtr make_uniform(const KernelRequest &request, DeviceState &) {
  require_dtype(request, request.outputs.at(0), DType::f32);
  return std::make_unique<Uniform>(request);
}

}  // namespace protrain::backend::cuda
