// The optimizer's update of one element, written once for all devices.
#pragma once

#include "arith/code8.h"
#include "arith/optimizer.h"
#include "arith/planes.h"
#include "backend/backend.h"
#include "backend/request.h"

namespace protrain::backend {

// Returns the treatment of gradients: they are multiplied by *scale (by 1 if `scale` is nullptr), and then clipped to
// [-clip_value, clip_value] (not at all if clip_value is 0).
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

// Counts the operands that hold the optimizer's state for one parameter. They follow the operands of its weights.
struct StateOperands {
  explicit StateOperands(const Optimizer &optimizer)
      : count(static_cast<std::size_t>(optimizer.state_count())), average(optimizer.average > 0 ? 1 : 0) {}
  std::size_t count, average;  // operands in all; moving averages among them (0 or 1), which come first
};

// The arrays that every update of one parameter works on. `average` is nullptr if there is no moving average.
template <typename Weights, typename Gradient>
struct TrainedArrays {
  const Gradient *__restrict gradient;
  Weights weights;
  float *__restrict average;

  // Returns the arrays of a launch's i-th parameter. Among the launch's outputs, the parameter's moments come after
  // these arrays. Sets `moments` to the index of the first moment.
  static TrainedArrays of(const Launch &launch, std::size_t i, const StateOperands &state, std::size_t &moments) {
    const std::size_t first = i * (Weights::kState + state.count);
    moments = first + Weights::kState + state.average;
    return {input<Gradient>(launch, i), Weights::of(launch, first),
            state.average > 0 ? output<float>(launch, moments - 1) : nullptr};
  }
};

// The arrays of an update with float32 moments. `first` or `second` is nullptr if the optimizer lacks this moment.
template <typename Weights, typename Gradient>
struct UpdateArrays : TrainedArrays<Weights, Gradient> {
  static UpdateArrays of(const Launch &launch, std::size_t i, const StateOperands &state) {
    std::size_t at = 0;
    const auto trained = TrainedArrays<Weights, Gradient>::of(launch, i, state, at);
    const std::size_t moments = state.count - state.average;
    return {trained, moments > 0 ? output<float>(launch, at) : nullptr,
            moments > 1 ? output<float>(launch, at + 1) : nullptr};
  }

  float *__restrict first;
  float *__restrict second;
};

// The arrays of an update whose moments are coded in 8 bits (arith/code8.h). For each of the two moments, a block of
// kCodedBlock weights has one scale.
template <typename Weights, typename Gradient>
struct CodedArrays : TrainedArrays<Weights, Gradient> {
  static CodedArrays of(const Launch &launch, std::size_t i, const StateOperands &state) {
    std::size_t at = 0;
    const auto trained = TrainedArrays<Weights, Gradient>::of(launch, i, state, at);
    return {trained, output<float>(launch, at), output<float>(launch, at + 1), output<std::uint8_t>(launch, at + 2),
            output<std::uint8_t>(launch, at + 3)};
  }

  float *__restrict scale1;
  float *__restrict scale2;
  std::uint8_t *__restrict code1;
  std::uint8_t *__restrict code2;
};

// Calls act() with the numbers of an optimizer of this kind, such as its learning rate.
template <typename Act>
void with_numbers(Optimizer::Kind kind, const OptimizerNumbers &numbers, Act &&act) {
  switch (kind) {
    case Optimizer::Kind::adamw:
      return act(numbers.adamw);
    case Optimizer::Kind::sgd:
      return act(numbers.sgd);
    case Optimizer::Kind::adagrad:
      return act(numbers.adagrad);
    case Optimizer::Kind::lion:
      return act(numbers.lion);
    case Optimizer::Kind::assign:
      return act(arith::Assign());
  }
}

// Updates the weight w of element i, and the element's moments. The gradient g is already scaled and clipped.
template <typename At>
PROTRAIN_HD void advance(const arith::AdamW &step, float g, float &w, const At &at, std::int64_t i) {
  arith::update(step, g, w, at.first[i], at.second[i]);
}
template <typename At>
PROTRAIN_HD void advance(const arith::Sgd &step, float g, float &w, const At &at, std::int64_t i) {
  if (at.first != nullptr)
    arith::update(step, g, w, at.first[i]);
  else
    arith::update(step, g, w);
}
template <typename Step, typename At>  // Adagrad, Lion
PROTRAIN_HD void advance(const Step &step, float g, float &w, const At &at, std::int64_t i) {
  arith::update(step, g, w, at.first[i]);
}
template <typename At>
PROTRAIN_HD void advance(const arith::Assign &, float g, float &w, const At &, std::int64_t) {
  w = g;
}

// The numbers that the updates of every optimizer use.
struct Common {
  arith::Treatment treatment;
  float average_rest;
};

// Updates the weight of element i by move(g, w), where g is the scaled and clipped gradient. Then updates the weight's
// moving average, if there is one.
template <typename At, typename Move>
PROTRAIN_HD void update_with(const Common &common, const At &at, std::int64_t i, Move &&move) {
  float w = at.weights.get(i);
  move(arith::treated(common.treatment, arith::widened(at.gradient[i])), w);
  at.weights.set(i, w);
  if (at.average != nullptr) at.average[i] = arith::averaged(common.average_rest, w, at.average[i]);
}
template <typename Step, typename At>
PROTRAIN_HD void update(const Step &step, const Common &common, const At &at, std::int64_t i) {
  update_with(common, at, i, [&](float g, float &w) { advance(step, g, w, at, i); });
}

// update_coded() updates element i, whose 8-bit moments have the scales of block number `block`. It does not store the
// new moments, but returns them: the first moment, and the root of the second moment.
struct CodedMoments {
  float mean, root;
};
template <typename At>
PROTRAIN_HD CodedMoments update_coded(const arith::AdamW &step, const Common &common, const At &at, std::int64_t i,
                                      std::int64_t block) {
  float mean = arith::signed_number(at.code1[i], at.scale1[block]);
  float root = arith::root_number(at.code2[i], at.scale2[block]), square = root * root;
  update_with(common, at, i, [&](float g, float &w) { arith::update(step, g, w, mean, square); });
  return {mean, __builtin_sqrtf(square)};
}

}  // namespace protrain::backend
