// CrossEntropy and its gradient. The logits are an operand here; LinearCrossEntropy computes them itself. Members share
// the rows. The losses of the rows are summed in double, in the order of the rows.
#include <algorithm>

#include "backend/cpu/floats.h"
#include "backend/cpu/targets.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
template <typename T>
class CrossEntropy : public CpuKernel {
 public:
  explicit CrossEntropy(const KernelRequest &request)
      : rows_(request.inputs.at(0).shape.at(0)),
        classes_(request.inputs[0].shape.at(1)),
        targets_(request, 1, 2, classes_),
        reduction_(reduction_of(request)) {
    scratch_bytes = checked_multiply(static_cast<std::uint64_t>(rows_), sizeof(double));
  }

  void run(Member &member, const Launch &launch) override {
    const T *logits = input<T>(launch, 0);
    auto *losses = static_cast<double *>(launch.scratch);
    float *loss = optional_output<float>(launch, 0);
    float *lse = optional_output<float>(launch, 1);
    const Range own = share(rows_, 1, member);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      const T *row = logits + i * classes_;
      const double sum = targets_.teacher ? targets_.teacher->log_sum_exp(row) : log_sum_exp(row, classes_);
      if (lse) lse[i] = static_cast<float>(sum);
      losses[i] = loss_of(launch, i, row, sum);
      if (reduction_ == Reduction::none && loss) loss[i] = static_cast<float>(losses[i]);
    }
    if (reduction_ == Reduction::none || !loss) return;
    member.barrier();
    if (member.index != 0) return;
    double total = 0;
    for (std::int64_t i = 0; i < rows_; ++i) total += losses[i];
    if (reduction_ == Reduction::mean) total /= targets_.total(launch);
    *loss = static_cast<float>(total);
  }

 private:
  double loss_of(const Launch &launch, std::int64_t i, const T *row, double lse) const {
    if (targets_.teacher) return targets_.teacher->loss(targets_.teacher->row(launch, i), row, lse);
    const Target target = targets_.at(launch, i);
    if (target.label == Target::kIgnored) return 0;
    return static_cast<double>(target.weight) * row_loss(targets_.terms, row, classes_, lse, target.label);
  }

  const std::int64_t rows_, classes_;
  const Targets targets_;
  const Reduction reduction_;
};

template <typename T>
class CrossEntropyGrad : public CpuKernel {
 public:
  explicit CrossEntropyGrad(const KernelRequest &request)
      : rows_(request.inputs.at(1).shape.at(0)),
        classes_(request.inputs[1].shape.at(1)),
        targets_(request, 2, 4, classes_),
        reduction_(reduction_of(request)) {
    for (std::size_t i : {0, 3}) require_dtype(request, request.inputs.at(i), DType::f32);
  }

  void run(Member &member, const Launch &launch) override {
    const float *upstream = input<float>(launch, 0), *lse = input<float>(launch, 3);
    const T *logits = input<T>(launch, 1);
    const auto total = reduction_ == Reduction::mean ? static_cast<float>(targets_.total(launch)) : 1.0F;
    const Range own = share(rows_, 1, member);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      const float factor = reduction_ == Reduction::none ? upstream[i] : *upstream / total;
      const T *row = logits + i * classes_;
      T *to = output<T>(launch, 0) + i * classes_;
      if (targets_.teacher)
        targets_.teacher->gradient(targets_.teacher->row(launch, i), row, lse[i], factor, to);
      else
        differentiate(targets_.at(launch, i), row, lse[i], factor, to);
    }
  }

 private:
  void differentiate(const Target &target, const T *row, float lse, float factor, T *to) const {
    if (target.label == Target::kIgnored)
      std::fill_n(to, classes_, T{});
    else
      row_gradient(targets_.terms.slopes(factor * target.weight, lse, widened(row[target.label]), classes_), row,
                   classes_, lse, target.label, to);
  }

  const std::int64_t rows_, classes_;
  const Targets targets_;
  const Reduction reduction_;
};
}  // namespace

KernelPtr make_cross_entropy(const KernelRequest &request, int) {
  return make_by_float<CrossEntropy>(request, request.inputs.at(0));
}

KernelPtr make_cross_entropy_grad(const KernelRequest &request, int) {
  return make_by_float<CrossEntropyGrad>(request, request.inputs.at(1));
}

}  // namespace protrain::backend::cpu
