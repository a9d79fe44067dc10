// Updates of weights in place, and the check that a scalar is finite. The arithmetic is the CPU's, bit for bit: this
// file, like all of this folder, is compiled without contraction of products.
#include "arith/optimizer.h"

#include <optional>

#include "backend/cpu/device.h"
#include "backend/cuda/elementwise.h"
#include "backend/optimizer_step.h"
#include "base/threads.h"

namespace protrain::backend::cuda {

namespace {
constexpr std::int64_t kWorthATeam =
    kEmulated ? 64 : 64 << 10;  // elements: to wake the team takes as long as thousands

struct Arrays {
  const float *gradient;
  const std::uint32_t *status;
  const float *scale;
  float *weights, *first, *second;
};

// kStates: arrays beside the weights. One thread a block works out the step's numbers: doubles are slow on some
// devices.
template <int kStates>
__global__ void update_kernel(Arrays arrays, Optimizer optimizer, const StepScalars *scalars, std::int64_t count) {
  using Step = std::conditional_t<kStates == 2, arith::AdamW, arith::Sgd>;
  if (*arrays.status != 0) return;
  __shared__ Step shared_step;
  if (threadIdx.x == 0) {
    if constexpr (kStates == 2)
      shared_step = adamw_step(optimizer, *scalars);
    else
      shared_step = sgd_step(optimizer, *scalars);
  }
  __syncthreads();
  const Step step = shared_step;
  const arith::Treatment treatment = treatment_of(optimizer.clip_value, arrays.scale);
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    const float g = arith::treated(treatment, arrays.gradient[i]);
    if constexpr (kStates == 2) arith::update(step, g, arrays.weights[i], arrays.first[i], arrays.second[i]);
    if constexpr (kStates == 1) arith::update(step, g, arrays.weights[i], arrays.first[i]);
    if constexpr (kStates == 0) arith::update(step, g, arrays.weights[i]);
  }
}

class Update : public CudaKernel {
 public:
  Update(const Optimizer &optimizer, std::int64_t elements)
      : optimizer_(optimizer), elements_(elements), on_host_(backend::make_update(optimizer, elements)) {}

  void run(Stream stream, const Launch &launch) override {
    const Arrays arrays{input<float>(launch, 0),  input<std::uint32_t>(launch, 1),   optional_input<float>(launch, 2),
                        output<float>(launch, 0), optional_output<float>(launch, 1), optional_output<float>(launch, 2)};
    const int states = optimizer_.state_count();
    cuda::launch(stream,
                 states == 2   ? update_kernel<2>
                 : states == 1 ? update_kernel<1>
                               : update_kernel<0>,
                 grid_of(elements_), arrays, optimizer_, launch.scalars, elements_);
  }

  void run_on_host(Team &team, const Launch &launch) override {
    Member alone(0, 1, nullptr);
    if (elements_ < kWorthATeam) return on_host_->run(alone, launch);
    team.enter([&] { team.run([&](Member &member) { on_host_->run(member, launch); }); });
  }

 private:
  const Optimizer optimizer_;
  const std::int64_t elements_;
  const std::unique_ptr<CpuKernel> on_host_;
};

template <typename T>
class Check : public CudaKernel {
 public:
  explicit Check(std::uint32_t mark) : mark_(mark) {}

  void run(Stream stream, const Launch &launch) override {
    const T *value = input<T>(launch, 0);
    auto *status = output<std::uint32_t>(launch, 0), *copy = optional_output<std::uint32_t>(launch, 1);
    each(stream, 1, [value, status, copy, mark = mark_] __device__(std::int64_t) {
      const T distance = *value - *value;  // 0 where it is finite, else NaN
      if (distance != 0 && *status == 0) *status = mark;
      if (copy != nullptr) *copy = *status;
    });
  }

 private:
  const std::uint32_t mark_;
};
}  // namespace

Made make_update(const Optimizer &optimizer, std::int64_t elements) {
  return std::make_unique<Update>(optimizer, elements);
}

Made make_check(DType dtype, std::uint32_t mark) {
  if (dtype == DType::f64) return std::make_unique<Check<double>>(mark);
  require(dtype == DType::f32, Code::unsupported, "check", "cuda checks float32 and float64 scalars, this one is {}",
          name_of(dtype));
  return std::make_unique<Check<float>>(mark);
}

}  // namespace protrain::backend::cuda
