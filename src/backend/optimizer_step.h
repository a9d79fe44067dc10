// An update as every device makes it: a step's numbers, worked out in double with the same bits everywhere, and what
// becomes of one element.
#pragma once

#include "arith/optimizer.h"
#include "arith/planes.h"
#include "backend/backend.h"
#include "backend/request.h"

namespace protrain::backend {

PROTRAIN_HD arith::AdamW adamw_step(const Optimizer &o, const StepScalars &s) {
  return {static_cast<float>(1 - s.learning_rate * o.weight_decay),
          static_cast<float>(o.beta1),
          static_cast<float>(1 - o.beta1),
          static_cast<float>(o.beta2),
          static_cast<float>(1 - o.beta2),
          static_cast<float>(__builtin_sqrt(1 - s.beta2_power)),
          static_cast<float>(o.epsilon),
          static_cast<float>(-s.learning_rate / (1 - s.beta1_power))};
}

PROTRAIN_HD arith::Sgd sgd_step(const Optimizer &o, const StepScalars &s) {
  return {static_cast<float>(s.learning_rate), static_cast<float>(o.weight_decay), static_cast<float>(o.momentum)};
}

// `scale`: what gradients are multiplied by; nullptr: 1.
PROTRAIN_HD arith::Treatment treatment_of(double clip_value, const float *scale) {
  arith::Treatment treatment;
  if (scale != nullptr) treatment.scale = *scale;
  if (clip_value > 0) treatment.limit = static_cast<float>(clip_value);
  return treatment;
}

// Weights in float32.
struct WholeWeights {
  float *__restrict at;
  explicit WholeWeights(const Launch &launch) : at(output<float>(launch, 0)) {}

  static constexpr std::size_t kState = 1;  // the output that the optimizer's state begins at
  PROTRAIN_HD float get(std::int64_t i) const { return at[i]; }
  PROTRAIN_HD void set(std::int64_t i, float w) const { at[i] = w; }
};

// Weights in a narrow type, and the lower plane of their masters.
template <typename T>
struct SplitWeights {
  T *__restrict high;
  arith::LowPlane<T> *__restrict low;
  explicit SplitWeights(const Launch &launch)
      : high(output<T>(launch, 0)), low(output<arith::LowPlane<T>>(launch, 1)) {}

  static constexpr std::size_t kState = 2;
  PROTRAIN_HD float get(std::int64_t i) const { return arith::joined(high[i], low[i]); }
  PROTRAIN_HD void set(std::int64_t i, float w) const {
    const arith::Planes<T> planes = arith::split<T>(w);
    high[i].bits = planes.high.bits;  // a copy of the struct would not be vectorised
    low[i] = planes.low;
  }
};

// What an update works on; of the state's arrays, those that the optimizer has.
template <typename Weights, typename Gradient>
struct UpdateArrays {
  explicit UpdateArrays(const Launch &launch)
      : gradient(input<Gradient>(launch, 0)),
        weights(launch),
        first(optional_output<float>(launch, Weights::kState)),
        second(optional_output<float>(launch, Weights::kState + 1)) {}

  const Gradient *__restrict gradient;
  Weights weights;
  float *__restrict first;
  float *__restrict second;
};

template <typename Weights, typename Gradient>
PROTRAIN_HD void update(const arith::AdamW &step, const arith::Treatment &t, const UpdateArrays<Weights, Gradient> &at,
                        std::int64_t i) {
  float w = at.weights.get(i);
  arith::update(step, arith::treated(t, arith::widened(at.gradient[i])), w, at.first[i], at.second[i]);
  at.weights.set(i, w);
}
template <typename Weights, typename Gradient>
PROTRAIN_HD void update(const arith::Sgd &step, const arith::Treatment &t, const UpdateArrays<Weights, Gradient> &at,
                        std::int64_t i) {
  float w = at.weights.get(i);
  const float g = arith::treated(t, arith::widened(at.gradient[i]));
  if (at.first != nullptr)
    arith::update(step, g, w, at.first[i]);
  else
    arith::update(step, g, w);
  at.weights.set(i, w);
}

}  // namespace protrain::backend
