// Dropout, and its gradient, which is the same operator on dy. The numbers depend on an element's place in its sample
// alone, and are the CPU's.
#include <algorithm>

#include "arith/random.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
struct Rule {
  std::uint32_t drop_below;
  float scale;
  std::int64_t per_sample, quads;  // elements of a sample, and groups of four that are drawn together
  std::uint64_t first_sample;
  bool samples;  // else all is one sample, number 0
};

template <typename T>
class Dropout : public CudaKernel {
 public:
  explicit Dropout(const KernelRequest &request)
      : key_(static_cast<std::uint64_t>(request.node.attributes.integer("key", 0))),
        samples_(request.node.attributes.integer("samples", 0)) {
    const auto ratio = static_cast<float>(request.node.attributes.real("ratio", 0.5));
    const std::int64_t count = element_count(request.inputs[0].shape);
    const std::int64_t per_sample = count / std::max<std::int64_t>(samples_, 1);
    rule_ = {
        arith::drop_below(ratio), arith::keep_scale(ratio), per_sample, divided_up(per_sample, 4), 0, samples_ != 0};
    drawn_ = per_sample == 0 ? 0 : count / per_sample * rule_.quads;
  }

  void run(Stream stream, const Launch &launch) override {
    const StepScalars &now = *launch.scalars;
    const arith::Stream numbers = arith::stream_of(now.seed, now.step, key_);
    Rule rule = rule_;
    rule.first_sample = now.first_sample;
    const T *x = input<T>(launch, 0);
    T *y = optional_output<T>(launch, 0);
    bool *mask = optional_output<bool>(launch, 1);
    each(stream, drawn_, [x, y, mask, numbers, rule] __device__(std::int64_t i) {
      std::int64_t quad = 0;
      const std::int64_t sample = divide(i, rule.quads, quad);
      const std::uint64_t number = rule.samples ? rule.first_sample + static_cast<std::uint64_t>(sample) : 0;
      const arith::Words words = arith::numbers(numbers, number, static_cast<std::uint64_t>(quad));
      for (int j = 0; j < 4 && 4 * quad + j < rule.per_sample; ++j) {
        const std::int64_t at = sample * rule.per_sample + 4 * quad + j;
        const bool kept = words.word[j] >= rule.drop_below;
        if (y != nullptr) y[at] = kept ? narrowed<T>(widened(x[at]) * rule.scale) : T{};
        if (mask != nullptr) mask[at] = kept;
      }
    });
  }

 private:
  const std::uint64_t key_;
  const std::int64_t samples_;
  Rule rule_;
  std::int64_t drawn_;
};
}  // namespace

Made make_dropout(const KernelRequest &request, Site &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> Made { return std::make_unique<Dropout<T>>(request); });
}

}  // namespace protrain::backend::cuda
