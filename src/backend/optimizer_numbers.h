// The scalars that the updates of a step use, such as the learning rate and bias corrections. The host computes them
// once, in double, for every device.
#pragma once

#include <cmath>

#include "arith/code8.h"
#include "backend/backend.h"

namespace protrain::backend {

// Returns AdamW's scalars for step t. The kernel implements Correction::moments: it divides the first moment by 1 -
// beta1^t and the second moment v by 1 - beta2^t. Correction::rate instead multiplies the learning rate by sqrt(1 -
// beta2^t) / (1 - beta1^t), and adds epsilon to the uncorrected sqrt(v). The kernel gives the result of
// Correction::rate if its epsilon is divided by sqrt(1 - beta2^t). So for Correction::rate this function returns the
// divided epsilon.
inline arith::AdamW adamw_numbers(const Optimizer &o, double learning_rate, double t) {
  const bool corrected = o.correction != Optimizer::Correction::none && t > 0;
  const double correction1 = corrected ? 1 - std::pow(o.beta1, t) : 1;
  const double root_correction2 = corrected ? std::sqrt(1 - std::pow(o.beta2, t)) : 1;
  const double decay = o.decoupled ? 1 - learning_rate * o.weight_decay : 1;
  const double epsilon = o.correction == Optimizer::Correction::rate ? o.epsilon / root_correction2 : o.epsilon;
  // If the weight w decays after the step, its new value is (w - step) * decay, which is w * decay - step * decay. The
  // kernel computes w * decay - step, so the step is multiplied by the decay here.
  const double step = learning_rate / correction1 * (o.decays_after ? decay : 1);
  return {.l2 = static_cast<float>(o.decoupled ? 0 : o.weight_decay),
          .decay = static_cast<float>(decay),
          .beta1 = static_cast<float>(o.beta1),
          .rest1 = static_cast<float>(1 - o.beta1),
          .beta2 = static_cast<float>(o.beta2),
          .rest2 = static_cast<float>(1 - o.beta2),
          .root_correction2 = static_cast<float>(root_correction2),
          .epsilon = static_cast<float>(epsilon),
          .minus_step = static_cast<float>(-step),
          .dither = arith::mixed(static_cast<std::uint32_t>(static_cast<std::int64_t>(t)))};
}

// Returns the scalars for the session's step number `step`, counted from 1.
inline OptimizerNumbers numbers_of(const Optimizer &o, double learning_rate, double step) {
  const double t = step + static_cast<double>(o.earlier_steps);
  const bool fresh = step == 1 && o.earlier_steps <= 0;  // the momentum buffer begins with the whole gradient
  const double rate = learning_rate / (1 + (t - 1) * o.rate_decay);
  return {.adamw = adamw_numbers(o, learning_rate, t),
          .sgd = {.learning_rate = static_cast<float>(learning_rate),
                  .weight_decay = static_cast<float>(o.weight_decay),
                  .momentum = static_cast<float>(o.momentum),
                  .rest = static_cast<float>(fresh ? 1 : 1 - o.dampening),
                  .ahead = static_cast<float>(o.nesterov ? o.momentum : 1),
                  .straight = o.nesterov ? 1.0F : 0.0F},
          .adagrad = {.l2 = static_cast<float>(o.weight_decay),
                      .epsilon = static_cast<float>(o.epsilon),
                      .minus_step = static_cast<float>(-rate)},
          .lion = {.decay = static_cast<float>(1 - learning_rate * o.weight_decay),
                   .beta1 = static_cast<float>(o.beta1),
                   .rest1 = static_cast<float>(1 - o.beta1),
                   .beta2 = static_cast<float>(o.beta2),
                   .rest2 = static_cast<float>(1 - o.beta2),
                   .learning_rate = static_cast<float>(learning_rate)},
          .average_rest = static_cast<float>(step == 1 ? 1 : 1 - o.average)};  // averages begin with the first weights
}

// Returns the scalars for each group of parameters. There are at most kMostGroups groups.
inline GroupNumbers numbers_of(Optimizer o, const std::vector<Group> &groups, double learning_rate, double step) {
  GroupNumbers numbers;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    o.weight_decay = groups[g].weight_decay;
    numbers[g] = numbers_of(o, learning_rate * groups[g].learning_rate_scale, step);
  }
  return numbers;
}

}  // namespace protrain::backend
