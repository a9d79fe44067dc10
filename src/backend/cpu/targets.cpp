#include "backend/cpu/targets.h"

#include <algorithm>
#include <numeric>

#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

Targets::Targets(const KernelRequest &request, std::size_t labels, std::size_t weights, std::int64_t classes)
    : terms(row_loss_of(request)),
      teacher(has_teacher(request, labels) ? std::optional<Teacher>(std::in_place, request, labels, classes)
                                           : std::nullopt),
      labels_(labels),
      weights_(weights),
      dtype_(request.inputs.at(labels).dtype),
      rows_(request.inputs[labels].shape.at(0)),
      classes_(classes),
      subject_(subject(request)) {
  if (teacher) return;
  require(dtype_ == DType::i64 || dtype_ == DType::i32, Code::unsupported, subject_,
          "labels on the cpu are int64 or int32, these are {}", name_of(dtype_));
  if (has_input(request, weights)) require_dtype(request, request.inputs[weights], DType::f32);
  if (request.node.attributes.has("ignore_index")) ignored_ = request.node.attributes.integer("ignore_index", 0);
}

Target Targets::at(const Launch &launch, std::int64_t row) const {
  const std::int64_t label =
      dtype_ == DType::i64 ? input<std::int64_t>(launch, labels_)[row] : input<std::int32_t>(launch, labels_)[row];
  if (ignored_ && label == *ignored_) return {Target::kIgnored, 0};
  require(label >= 0 && label < classes_, Code::arg, subject_, "label {} of row {} is outside 0..{}", label, row,
          classes_ - 1);
  const auto *weights = optional_input<float>(launch, weights_);
  const float weight = weights != nullptr ? weights[row] : 1;
  return {weight != 0 ? label : Target::kIgnored, weight};
}

double Targets::total(const Launch &launch) const {
  if (teacher) return static_cast<double>(rows_);
  double total = 0;
  for (std::int64_t i = 0; i < rows_; ++i) total += static_cast<double>(at(launch, i).weight);
  return total;
}

namespace {
template <typename T>
struct Loops {
  PROTRAIN_CLONES static float sum(const T *x, std::int64_t count) {
    float lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] += widened(x[i + l]);
    for (int l = 0; i < count; ++i, ++l) lanes[l] += widened(x[i]);
    return std::accumulate(lanes, lanes + kLanes, 0.0F);
  }
  PROTRAIN_CLONES static void gradient(const T *x, std::int64_t count, float lse, const arith::RowSlopes &slopes,
                                       T *to) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = narrowed<T>(slopes.of_log(widened(x[i]) - lse));
  }
};
}  // namespace

template <typename T>
double row_loss(const arith::RowLoss &terms, const T *x, std::int64_t count, double lse, std::int64_t label) {
  double sum = 0;
  for (std::int64_t i = 0; terms.smoothing != 0 && i < count; i += kRun)
    sum += static_cast<double>(Loops<T>::sum(x + i, std::min(kRun, count - i)));
  return terms.loss(lse, static_cast<double>(widened(x[label])), sum / static_cast<double>(count));
}

template <typename T>
void row_gradient(const arith::RowSlopes &slopes, const T *x, std::int64_t count, float lse, std::int64_t label,
                  T *to) {
  const float at_label = slopes.of_log(widened(x[label]) - lse) - slopes.peak;
  Loops<T>::gradient(x, count, lse, slopes, to);
  to[label] = narrowed<T>(at_label);
}

template double row_loss(const arith::RowLoss &, const float *, std::int64_t, double, std::int64_t);
template double row_loss(const arith::RowLoss &, const bf16 *, std::int64_t, double, std::int64_t);
template double row_loss(const arith::RowLoss &, const f16 *, std::int64_t, double, std::int64_t);
template void row_gradient(const arith::RowSlopes &, const float *, std::int64_t, float, std::int64_t, float *);
template void row_gradient(const arith::RowSlopes &, const bf16 *, std::int64_t, float, std::int64_t, bf16 *);
template void row_gradient(const arith::RowSlopes &, const f16 *, std::int64_t, float, std::int64_t, f16 *);

}  // namespace protrain::backend::cpu
