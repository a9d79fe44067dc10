// CrossEntropy and its gradient. The logits are an input of the node. A block computes one row of them.
#include "backend/cuda/targets.h"
#include "backend/cuda/teacher.h"

namespace protrain::backend::cuda {

namespace {
// Computes each row's loss and lse (log-sum-exp). The loss goes to `losses` in double and to `loss` in float32. A
// nullptr means that the output is not wanted.
template <typename T>
__global__ void rows_kernel(Targets targets, const T *logits, double *losses, float *loss, float *lse) {
  const std::int64_t row = blockIdx.x, classes = targets.classes, label = targets[row];
  const T *x = logits + row * classes;
  const double sum = log_sum_exp<1>(x, classes);
  double own = label == Targets::kWrong ? NAN : 0;
  if (label >= 0) own = static_cast<double>(targets.weight(row)) * row_loss(targets.terms, x, classes, sum, label);
  if (threadIdx.x != 0) return;
  if (lse != nullptr) lse[row] = static_cast<float>(sum);
  if (losses != nullptr) losses[row] = own;
  if (loss != nullptr) loss[row] = static_cast<float>(own);
}

// Computes the same as rows_kernel, but for distillation: the targets are a teacher's logits instead of labels.
template <typename T>
__global__ void taught_rows_kernel(Teacher teacher, const T *logits, double *losses, float *loss, float *lse) {
  const std::int64_t row = blockIdx.x;
  const T *x = logits + row * teacher.classes;
  const float *t = teacher.row(row);
  const double sum = teacher.log_sum_exp(x), own = teacher.loss(x, sum, t, teacher.log_sum_exp(t));
  if (threadIdx.x != 0) return;
  if (lse != nullptr) lse[row] = static_cast<float>(sum);
  if (losses != nullptr) losses[row] = own;
  if (loss != nullptr) loss[row] = static_cast<float>(own);
}

// The factor of a row's gradient: the upstream gradient, divided by the sum of all weights if the loss is a mean.
struct LossFactor {
  const float *upstream;
  bool per_row;           // true: each row has its own upstream gradient; false: all rows share one
  const double *weights;  // nullptr: the factor is not divided

  __device__ float of(std::int64_t row) const {
    const float given = per_row ? upstream[row] : *upstream;
    return weights != nullptr ? given / static_cast<float>(*weights) : given;
  }
};

// Computes the gradient of each row. It is 0 if the row's label is ignored.
template <typename T>
__global__ void gradient_kernel(Targets targets, const T *logits, const float *lse, LossFactor upstream, T *dx) {
  const std::int64_t row = blockIdx.x, classes = targets.classes, label = targets[row];
  const float at_label = label >= 0 ? widened(logits[row * classes + label]) : 0.0f;
  const arith::RowSlopes slopes =
      targets.terms.slopes(upstream.of(row) * targets.weight(row), lse[row], at_label, classes);
  for (std::int64_t i = threadIdx.x; i < classes; i += blockDim.x) {
    const float p = slopes.of_log(widened(logits[row * classes + i]) - lse[row]);
    const float slope = p - (i == label ? slopes.peak : 0.0f);
    dx[row * classes + i] = narrowed<T>(label == Targets::kIgnored ? 0.0f : (label == Targets::kWrong ? NAN : slope));
  }
}

template <typename T>
__global__ void taught_gradient_kernel(Teacher teacher, const T *logits, const float *lse, LossFactor upstream, T *dx) {
  const std::int64_t row = blockIdx.x, first = row * teacher.classes;
  const float *t = teacher.row(row);
  teacher.gradient(logits + first, lse[row], t, teacher.log_sum_exp(t), upstream.of(row), dx + first);
}

template <typename T>
class CrossEntropy : public CudaKernel {
 public:
  CrossEntropy(const KernelRequest &request, DeviceState &device)
      : targets_(request, 1, 2, request.inputs.at(0).shape.at(1), device),
        teacher_(request),
        reduction_(reduction_of(request)) {
    scratch_bytes = checked_multiply(static_cast<std::uint64_t>(targets_.rows + 1), sizeof(double));
  }

  void run(Stream stream, const Launch &launch) override {
    const Targets targets = targets_.from(launch);
    auto *weights = static_cast<double *>(launch.scratch), *losses = weights + 1;
    const bool per_row = reduction_ == Reduction::none;
    auto *loss = optional_output<float>(launch, 0);
    const auto rows = [&](auto *kernel, const auto &compared_with) {
      cuda::launch(stream, kernel, {targets.rows, row_threads(targets.classes)}, compared_with, input<T>(launch, 0),
                   per_row ? nullptr : losses, per_row ? loss : nullptr, optional_output<float>(launch, 1));
    };
    if (targets.taught)
      rows(taught_rows_kernel<T>, teacher_.from(targets));
    else
      rows(rows_kernel<T>, targets);
    if (per_row || loss == nullptr) return;
    cuda::launch(stream, sum_weights_kernel, {1}, targets, weights);
    cuda::launch(stream, total_loss_kernel, {1}, static_cast<const double *>(losses), targets.rows,
                 static_cast<const double *>(weights), reduction_ == Reduction::mean, loss);
  }

 private:
  const Targets targets_;
  const Teacher teacher_;
  const Reduction reduction_;
};

template <typename T>
class CrossEntropyGrad : public CudaKernel {
 public:
  CrossEntropyGrad(const KernelRequest &request, DeviceState &device)
      : targets_(request, 2, 4, request.inputs.at(1).shape.at(1), device),
        teacher_(request),
        reduction_(reduction_of(request)) {
    for (std::size_t i : {0, 3}) require_dtype(request, request.inputs.at(i), DType::f32);
    scratch_bytes = sizeof(double);
  }

  void run(Stream stream, const Launch &launch) override {
    const Targets targets = targets_.from(launch);
    double *weights = reduction_ == Reduction::mean ? static_cast<double *>(launch.scratch) : nullptr;
    if (weights != nullptr) cuda::launch(stream, sum_weights_kernel, {1}, targets, weights);
    const auto rows = [&](auto *kernel, const auto &compared_with) {
      cuda::launch(stream, kernel, {targets.rows, row_threads(targets.classes)}, compared_with, input<T>(launch, 1),
                   input<float>(launch, 3), LossFactor{input<float>(launch, 0), reduction_ == Reduction::none, weights},
                   output<T>(launch, 0));
    };
    if (targets.taught)
      rows(taught_gradient_kernel<T>, teacher_.from(targets));
    else
      rows(gradient_kernel<T>, targets);
  }

 private:
  const Targets targets_;
  const Teacher teacher_;
  const Reduction reduction_;
};
}  // namespace

KernelPtr make_cross_entropy(const KernelRequest &request, DeviceState &device) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<CrossEntropy<T>>(request, device); });
}

KernelPtr make_cross_entropy_grad(const KernelRequest &request, DeviceState &device) {
  return by_float(request, request.inputs.at(1),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<CrossEntropyGrad<T>>(request, device); });
}

}  // namespace protrain::backend::cuda
