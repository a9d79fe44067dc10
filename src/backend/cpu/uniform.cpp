// Uniform: random numbers in (0, 1). Within a step an element's number depends only on its sample and on its position
// in the sample. So neither the team's size nor a cut into micro-batches changes a bit.
#include <algorithm>

#include "arith/random.h"
#include "backend/cpu/elementwise.h"

namespace protrain::backend::cpu {

namespace {
class UniformKernel : public CpuKernel {
 public:
  explicit UniformKernel(const KernelRequest &request)
      : key_(static_cast<std::uint64_t>(request.node.attributes.integer("key", 0))),
        samples_(request.node.attributes.integer("samples", 0)),
        count_(element_count(request.outputs.at(0).shape)),
        per_sample_(count_ / std::max<std::int64_t>(samples_, 1)),
        quads_((per_sample_ + 3) / 4) {
    require_dtype(request, request.outputs[0], DType::f32);
  }

  void run(Member &member, const Launch &launch) override {
    const StepScalars &now = *launch.scalars;
    const arith::Stream stream = arith::stream_of(now.seed, now.step, key_);
    const Range mine = share(quads_ * std::max<std::int64_t>(samples_, 1), kElementGrain, member);
    float *out = output<float>(launch, 0);
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      const std::int64_t sample = i / quads_, quad = i % quads_;
      const std::uint64_t number = samples_ == 0 ? 0 : now.first_sample + static_cast<std::uint64_t>(sample);
      const arith::Words words = arith::numbers(stream, number, static_cast<std::uint64_t>(quad));
      for (std::int64_t j = 0; j < 4 && 4 * quad + j < per_sample_; ++j)
        out[sample * per_sample_ + 4 * quad + j] = arith::uniform(words.word[j]);
    }
  }

 private:
  const std::uint64_t key_;
  const std::int64_t samples_, count_, per_sample_, quads_;  // quads: groups of four numbers that are drawn together
};
}  // namespace

KernelPtr make_uniform(const KernelRequest &request, int) { return std::make_unique<UniformKernel>(request); }

}  // namespace protrain::backend::cpu
