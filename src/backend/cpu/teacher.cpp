#include "backend/cpu/teacher.h"

#include <algorithm>
#include <numeric>

#include "backend/common/reduction.h"
#include "backend/cpu/floats.h"
#include "backend/cpu/log_sum_exp.h"

namespace protrain::backend::cpu {

namespace {
template <typename T>
struct Loops {
  PROTRAIN_CLONES static float apart(const T *x, const float *t, std::int64_t count, const arith::Distillation &terms,
                                     float wanted) {
    float lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] += terms.apart(widened(x[i + l]), t[i + l], wanted);
    for (int l = 0; i < count; ++i, ++l) lanes[l] += terms.apart(widened(x[i]), t[i], wanted);
    return std::accumulate(lanes, lanes + kLanes, 0.0F);
  }
  PROTRAIN_CLONES static void gradient(const T *x, const float *t, std::int64_t count,
                                       const arith::DistillationSlopes &slopes, T *to) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) to[i] = narrowed<T>(slopes.of(widened(x[i]), t[i]));
  }
};
}  // namespace

Teacher::Teacher(const KernelRequest &request, std::size_t logits, std::int64_t classes)
    : terms_(distillation_of(request)), logits_(logits), classes_(classes) {
  require_dtype(request, request.inputs.at(logits), DType::f32);
}

Teacher::Row Teacher::row(const Launch &launch, std::int64_t i) const {
  const float *logits = input<float>(launch, logits_) + i * classes_;
  return {logits, log_sum_exp(logits)};
}

template <typename T>
double Teacher::log_sum_exp(const T *x) const {
  return log_sum_exp_scaled(x, classes_, terms_.scale);
}

template <typename T>
double Teacher::loss(const Row &row, const T *x, double lse) const {
  double apart = 0;
  for (std::int64_t i = 0; i < classes_; i += kRun)
    apart += static_cast<double>(
        Loops<T>::apart(x + i, row.logits + i, std::min(kRun, classes_ - i), terms_, static_cast<float>(row.lse)));
  return terms_.loss(apart, lse, row.lse);
}

template <typename T>
void Teacher::gradient(const Row &row, const T *x, float lse, float factor, T *to) const {
  Loops<T>::gradient(x, row.logits, classes_, terms_.slopes(factor, lse, static_cast<float>(row.lse)), to);
}

template double Teacher::log_sum_exp(const float *x) const;
template double Teacher::log_sum_exp(const bf16 *x) const;
template double Teacher::log_sum_exp(const f16 *x) const;
template double Teacher::loss(const Row &, const float *, double) const;
template double Teacher::loss(const Row &, const bf16 *, double) const;
template double Teacher::loss(const Row &, const f16 *, double) const;
template void Teacher::gradient(const Row &, const float *, float, float, float *) const;
template void Teacher::gradient(const Row &, const bf16 *, float, float, bf16 *) const;
template void Teacher::gradient(const Row &, const f16 *, float, float, f16 *) const;

}  // namespace protrain::backend::cpu
