// Updates of weights in place, and the check that a scalar is finite. The arithmetic is the CPU's, bit for bit: this
// file, like all of this folder, is compiled without contraction of products.
#include "arith/optimizer.h"

#include "backend/cpu/device.h"
#include "backend/cuda/elementwise.h"
#include "backend/optimizer_step.h"
#include "base/threads.h"

namespace protrain::backend::cuda {

namespace {
constexpr std::int64_t kWorthATeam =
    kEmulated ? 64 : 64 << 10;  // elements: to wake the team takes as long as thousands

// One thread a block works out the step's numbers: doubles are slow on some devices.
template <typename Step, typename Weights, typename Gradient>
__global__ void update_kernel(UpdateArrays<Weights, Gradient> at, const std::uint32_t *status, const float *scale,
                              Optimizer optimizer, const StepScalars *scalars, std::int64_t count) {
  if (*status != 0) return;
  __shared__ Step shared_step;
  if (threadIdx.x == 0) {
    if constexpr (std::is_same_v<Step, arith::AdamW>)
      shared_step = adamw_step(optimizer, *scalars);
    else
      shared_step = sgd_step(optimizer, *scalars);
  }
  __syncthreads();
  const Step step = shared_step;
  const arith::Treatment treatment = treatment_of(optimizer.clip_value, scale);
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) update(step, treatment, at, i);
}

template <typename Weights, typename Gradient>
class Update : public CudaKernel {
 public:
  explicit Update(const UpdateRequest &request)
      : optimizer_(request.optimizer), elements_(request.elements), on_host_(backend::make_update(request)) {}

  void run(Stream stream, const Launch &launch) override {
    const bool adamw = optimizer_.kind == Optimizer::Kind::adamw;
    cuda::launch(stream,
                 adamw ? update_kernel<arith::AdamW, Weights, Gradient> : update_kernel<arith::Sgd, Weights, Gradient>,
                 grid_of(elements_), UpdateArrays<Weights, Gradient>(launch), input<std::uint32_t>(launch, 1),
                 optional_input<float>(launch, 2), optimizer_, launch.scalars, elements_);
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
  Check(std::uint32_t mark, const Fault *fault) : mark_(mark), fault_(fault) {}

  void run(Stream stream, const Launch &launch) override {
    const T *value = input<T>(launch, 0);
    auto *status = output<std::uint32_t>(launch, 0), *copy = optional_output<std::uint32_t>(launch, 1);
    each(stream, 1, [value, status, copy, mark = mark_, fault = fault_] __device__(std::int64_t) {
      const T distance = *value - *value;  // 0 where it is finite, else NaN
      if ((distance != 0 || fault->claimed != 0) && *status == 0) *status = mark;
      if (copy != nullptr) *copy = *status;
    });
  }

 private:
  const std::uint32_t mark_;
  const Fault *const fault_;
};
}  // namespace

// The CPU's kernel, made for the host, has refused what there is none for.
Made make_update(const UpdateRequest &request) {
  if (request.weights == DType::f32) return std::make_unique<Update<WholeWeights, float>>(request);
  require(request.weights == DType::bf16, Code::unsupported, "update", "of {} weights on cuda",
          name_of(request.weights));
  if (request.gradient == DType::f32) return std::make_unique<Update<SplitWeights<bf16>, float>>(request);
  return std::make_unique<Update<SplitWeights<bf16>, bf16>>(request);
}

Made make_check(DType dtype, std::uint32_t mark, const Site &site) {
  if (dtype == DType::f64) return std::make_unique<Check<double>>(mark, site.faults.noted());
  require(dtype == DType::f32, Code::unsupported, "check", "cuda checks float32 and float64 scalars, this one is {}",
          name_of(dtype));
  return std::make_unique<Check<float>>(mark, site.faults.noted());
}

}  // namespace protrain::backend::cuda
