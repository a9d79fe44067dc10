// Dropout, and its gradient, which is the same operator on dy. The random numbers are the CPU's: within a step an
// element's number depends only on its sample and on its position in the sample.
#include <algorithm>

#include "arith/random.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
struct Rule {
  std::uint64_t key;
  std::uint32_t drop_below;
  float scale;
  std::int64_t per_sample, quads;  // elements of a sample; its groups of four, drawn together
  std::int64_t drawn;              // groups of four in all samples
  bool samples;                    // each sample has its own numbers; else all elements are sample 0
};

template <typename T>
__global__ void dropout_kernel(const T *x, T *y, bool *mask, Rule rule, const StepScalars *scalars) {
  const arith::Stream numbers = arith::stream_of(scalars->seed, scalars->step, rule.key);
  const std::uint64_t first_sample = scalars->first_sample;
  for (std::int64_t i = thread_index(); i < rule.drawn; i += thread_count()) {
    std::int64_t quad = 0;
    const std::int64_t sample = divide(i, rule.quads, quad);
    const std::uint64_t number = rule.samples ? first_sample + static_cast<std::uint64_t>(sample) : 0;
    const arith::Words words = arith::numbers(numbers, number, static_cast<std::uint64_t>(quad));
    for (int j = 0; j < 4 && 4 * quad + j < rule.per_sample; ++j) {
      const std::int64_t at = sample * rule.per_sample + 4 * quad + j;
      const bool kept = words.word[j] >= rule.drop_below;
      if (y != nullptr) y[at] = kept ? narrowed<T>(widened(x[at]) * rule.scale) : T{};
      if (mask != nullptr) mask[at] = kept;
    }
  }
}

template <typename T>
class Dropout : public CudaKernel {
 public:
  explicit Dropout(const KernelRequest &request) {
    const auto key = static_cast<std::uint64_t>(request.node.attributes.integer("key", 0));
    const std::int64_t samples = request.node.attributes.integer("samples", 0);
    const auto ratio = static_cast<float>(request.node.attributes.real("ratio", 0.5));
    const std::int64_t count = element_count(request.inputs[0].shape);
    const std::int64_t per_sample = count / std::max<std::int64_t>(samples, 1);
    const std::int64_t quads = divided_up(per_sample, 4);
    rule_ = {.key = key,
             .drop_below = arith::drop_below(ratio),
             .scale = arith::keep_scale(ratio),
             .per_sample = per_sample,
             .quads = quads,
             .drawn = per_sample == 0 ? 0 : count / per_sample * quads,
             .samples = samples != 0};
  }

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, dropout_kernel<T>, grid_of(rule_.drawn), input<T>(launch, 0), optional_output<T>(launch, 0),
                 optional_output<bool>(launch, 1), rule_, launch.scalars);
  }

 private:
  Rule rule_;
};
}  // namespace

KernelPtr make_dropout(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<Dropout<T>>(request); });
}

}  // namespace protrain::backend::cuda
