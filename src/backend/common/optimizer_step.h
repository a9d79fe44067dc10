// The optimizer's update of one element, written once for all devices.
#pragma once

#include "arith/optimizer.h"
#include "arith/planes.h"
#include "backend/backend.h"
#include "backend/request.h"

namespace protrain::backend {

// Returns the treatment of gradients: they are multiplied by *scale (by 1 if nullptr), then limited to clip_value (0:
// no limit).
PROTRAIN_HD arith::Treatment treatment_of(double clip_value, const float *scale) {
  arith::Treatment treatment;
  if (scale != nullptr) treatment.scale = *scale;
  if (clip_value > 0) treatment.limit = static_cast<float>(clip_value);
  return treatment;
}

// Weights in float32.
struct WholeWeights {
  float *__restrict at;
  static WholeWeights of(const Launch &launch, std::size_t first) { return {output<float>(launch, first)}; }

  static constexpr std::size_t kState = 1;  // number of a parameter's outputs before its optimizer state
  PROTRAIN_HD float get(std::int64_t i) const { return at[i]; }
  PROTRAIN_HD void set(std::int64_t i, float w) const { at[i] = w; }
};

// Weights in a narrow type, with the lower plane of their masters.
template <typename T>
struct SplitWeights {
  using Low = arith::LowPlane<T>;
  T *__restrict high;
  Low *__restrict low;
  static SplitWeights of(const Launch &launch, std::size_t first) {
    return {output<T>(launch, first), output<Low>(launch, first + 1)};
  }

  static constexpr std::size_t kState = 2;
  PROTRAIN_HD float get(std::int64_t i) const { return arith::joined(high[i], low[i]); }
  PROTRAIN_HD void set(std::int64_t i, float w) const {
    const arith::Planes<T> planes = arith::split<T>(w);
    high[i].bits = planes.high.bits;  // copying the struct instead would keep the loop from being vectorised
    low[i] = planes.low;
  }
};

// The arrays of one parameter that an update works on. `first` and `second` are the optimizer's state; nullptr if the
// optimizer does not have it.
template <typename Weights, typename Gradient>
struct UpdateArrays {
  // Returns the arrays of a launch's i-th parameter. `state` is Optimizer::state_count().
  static UpdateArrays of(const Launch &launch, std::size_t i, int state) {
    const std::size_t first = i * (Weights::kState + static_cast<std::size_t>(state)),
                      moments = first + Weights::kState;
    return {input<Gradient>(launch, i), Weights::of(launch, first),
            state > 0 ? output<float>(launch, moments) : nullptr,
            state > 1 ? output<float>(launch, moments + 1) : nullptr};
  }

  const Gradient *__restrict gradient;
  Weights weights;
  float *__restrict first;
  float *__restrict second;
};

// Calls act() with the numbers of an optimizer of this kind.
template <typename Act>
void with_numbers(Optimizer::Kind kind, const OptimizerNumbers &numbers, Act &&act) {
  switch (kind) {
    case Optimizer::Kind::adamw:
      return act(numbers.adamw);
    case Optimizer::Kind::sgd:
      return act(numbers.sgd);
    case Optimizer::Kind::adagrad:
      return act(numbers.adagrad);
    case Optimizer::Kind::assign:
      return act(arith::Assign());
  }
}

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
template <typename Weights, typename Gradient>
PROTRAIN_HD void update(const arith::Assign &, const arith::Treatment &t, const UpdateArrays<Weights, Gradient> &at,
                        std::int64_t i) {
  at.weights.set(i, arith::treated(t, arith::widened(at.gradient[i])));
}
template <typename Weights, typename Gradient>
PROTRAIN_HD void update(const arith::Adagrad &step, const arith::Treatment &t,
                        const UpdateArrays<Weights, Gradient> &at, std::int64_t i) {
  float w = at.weights.get(i);
  arith::update(step, arith::treated(t, arith::widened(at.gradient[i])), w, at.first[i]);
  at.weights.set(i, w);
}

}  // namespace protrain::backend
