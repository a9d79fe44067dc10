// Updates of weights in place, and the check that a scalar is finite.
#include "arith/optimizer.h"

#include "backend/cpu/clones.h"
#include "backend/cpu/device.h"
#include "backend/optimizer_step.h"

namespace protrain::backend {

namespace {
constexpr std::int64_t kLine = 16;  // floats of a cache line: no two members write to one

struct Spans {
  arith::Treatment treatment;
  const float *__restrict gradient;
  float *__restrict weights;
  float *__restrict first;
  float *__restrict second;
};

PROTRAIN_CLONES
void adamw(const arith::AdamW &step, const Spans &at, Range range) {
  const arith::AdamW c = step;
  const arith::Treatment t = at.treatment;
  const float *__restrict g = at.gradient;
  float *__restrict w = at.weights, *__restrict m = at.first, *__restrict v = at.second;
  for (std::int64_t i = range.begin; i < range.end; ++i) arith::update(c, arith::treated(t, g[i]), w[i], m[i], v[i]);
}

PROTRAIN_CLONES
void momentum_sgd(const arith::Sgd &step, const Spans &at, Range range) {
  const arith::Sgd c = step;
  const arith::Treatment t = at.treatment;
  const float *__restrict g = at.gradient;
  float *__restrict w = at.weights, *__restrict b = at.first;
  for (std::int64_t i = range.begin; i < range.end; ++i) arith::update(c, arith::treated(t, g[i]), w[i], b[i]);
}

PROTRAIN_CLONES
void plain_sgd(const arith::Sgd &step, const Spans &at, Range range) {
  const arith::Sgd c = step;
  const arith::Treatment t = at.treatment;
  const float *__restrict g = at.gradient;
  float *__restrict w = at.weights;
  for (std::int64_t i = range.begin; i < range.end; ++i) arith::update(c, arith::treated(t, g[i]), w[i]);
}

class Update : public CpuKernel {
 public:
  Update(const Optimizer &optimizer, std::int64_t elements) : optimizer_(optimizer), elements_(elements) {}

  void run(Member &member, const Launch &launch) override {
    if (*input<std::uint32_t>(launch, 1) != 0) return;
    const int states = optimizer_.state_count();
    const Spans at{treatment_of(optimizer_.clip_value, optional_input<float>(launch, 2)), input<float>(launch, 0),
                   output<float>(launch, 0), optional_output<float>(launch, 1), optional_output<float>(launch, 2)};
    const Range range = share(elements_, kLine, member);
    if (optimizer_.kind == Optimizer::Kind::adamw) return adamw(adamw_step(optimizer_, *launch.scalars), at, range);
    const arith::Sgd step = sgd_step(optimizer_, *launch.scalars);
    states > 0 ? momentum_sgd(step, at, range) : plain_sgd(step, at, range);
  }

 private:
  const Optimizer optimizer_;
  const std::int64_t elements_;
};

class Check : public CpuKernel {
 public:
  Check(DType dtype, std::uint32_t mark) : dtype_(dtype), mark_(mark) {
    require(dtype == DType::f32 || dtype == DType::f64, Code::unsupported, "check",
            "the cpu checks float32 and float64 scalars, this one is {}", name_of(dtype));
  }

  void run(Member &member, const Launch &launch) override {
    if (member.index != 0) return;
    const double value = dtype_ == DType::f32 ? *input<float>(launch, 0) : *input<double>(launch, 0);
    auto &status = *output<std::uint32_t>(launch, 0);
    if (!std::isfinite(value) && status == 0) status = mark_;
    if (auto *copy = optional_output<std::uint32_t>(launch, 1)) *copy = status;
  }

 private:
  const DType dtype_;
  const std::uint32_t mark_;
};
}  // namespace

std::unique_ptr<CpuKernel> make_update(const Optimizer &optimizer, std::int64_t elements) {
  require(elements >= 0, Code::internal, "update", "{} elements", elements);
  return std::make_unique<Update>(optimizer, elements);
}

std::unique_ptr<CpuKernel> make_check(DType dtype, std::uint32_t mark) { return std::make_unique<Check>(dtype, mark); }

}  // namespace protrain::backend
