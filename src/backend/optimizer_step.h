// A step's numbers as the optimizers' arithmetic takes them: worked out in double, with the same bits on every device.
#pragma once

#include "arith/optimizer.h"
#include "backend/backend.h"

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

}  // namespace protrain::backend
