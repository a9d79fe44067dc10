// The numbers that all updates of a step use. The host computes them once, in double, for every device.
#pragma once

#include <cmath>

#include "backend/backend.h"

namespace protrain::backend {

// Returns the numbers of step t. The first step is t = 1.
inline OptimizerNumbers numbers_of(const Optimizer &o, double learning_rate, double t) {
  return {
      .adamw = {static_cast<float>(1 - learning_rate * o.weight_decay), static_cast<float>(o.beta1),
                static_cast<float>(1 - o.beta1), static_cast<float>(o.beta2), static_cast<float>(1 - o.beta2),
                static_cast<float>(std::sqrt(1 - std::pow(o.beta2, t))), static_cast<float>(o.epsilon),
                static_cast<float>(-learning_rate / (1 - std::pow(o.beta1, t)))},
      .sgd = {static_cast<float>(learning_rate), static_cast<float>(o.weight_decay), static_cast<float>(o.momentum)}};
}

}  // namespace protrain::backend
