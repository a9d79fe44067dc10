// Updates of weights in place, and the check that a scalar is finite. The arithmetic is the CPU's, bit for bit: this
// file, like all of this folder, is compiled without contraction of products.
#include "arith/optimizer.h"

#include "backend/cpu/device.h"
#include "backend/cuda/elementwise.h"
#include "backend/optimizer_step.h"
#include "base/threads.h"

namespace protrain::backend::cuda {

namespace {
template <typename Step, typename Weights, typename Gradient>
__global__ void update_kernel(UpdateArrays<Weights, Gradient> at, const std::uint32_t *status, const float *scale,
                              Step step, double clip_value, std::int64_t count) {
  if (*status != 0) return;
  const arith::Treatment treatment = treatment_of(clip_value, scale);
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) update(step, treatment, at, i);
}

template <typename Weights, typename Gradient>
class Update : public CudaKernel {
 public:
  explicit Update(const UpdateRequest &request)
      : optimizer_(request.optimizer), elements_(request.elements), on_host_(backend::make_update(request)) {}

  void run(Stream stream, const Launch &launch) override {
    if (optimizer_.kind == Optimizer::Kind::adamw)
      run(stream, launch, adamw_step(optimizer_, *launch.scalars));
    else
      run(stream, launch, sgd_step(optimizer_, *launch.scalars));
  }

  void run_on_host(const Launch &launch) override {
    Member member(0, 1, nullptr);
    on_host_->run(member, launch);
  }

 private:
  template <typename Step>
  void run(Stream stream, const Launch &launch, const Step &step) {
    cuda::launch(stream, update_kernel<Step, Weights, Gradient>, grid_of(elements_),
                 UpdateArrays<Weights, Gradient>(launch), input<std::uint32_t>(launch, 1),
                 optional_input<float>(launch, 2), step, optimizer_.clip_value, elements_);
  }

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

// The CPU's kernel, made for the host, has refused what there is none for.
Made make_update(const UpdateRequest &request) {
  if (request.weights == DType::f32) return std::make_unique<Update<WholeWeights, float>>(request);
  if (request.gradient == DType::f32) return std::make_unique<Update<SplitWeights, float>>(request);
  return std::make_unique<Update<SplitWeights, bf16>>(request);
}

Made make_check(DType dtype, std::uint32_t mark) {
  if (dtype == DType::f64) return std::make_unique<Check<double>>(mark);
  require(dtype == DType::f32, Code::unsupported, "check", "cuda checks float32 and float64 scalars, this one is {}",
          name_of(dtype));
  return std::make_unique<Check<float>>(mark);
}

}  // namespace protrain::backend::cuda
