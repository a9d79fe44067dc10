// Distillation: the loss of one row of logits x whose targets are a teacher's logits t, written once for all devices.
// With a temperature T, p = softmax(t / T) and lse(z) = log(sum(exp(z / T))), a row's loss is
//     T^2 KL(p || softmax(x / T)) = T^2 (sum(p (t - x) / T) + lse(x) - lse(t))
// and its gradient is T (softmax(x / T) - p) (Hinton et al., arXiv 1503.02531).
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// The numbers that give a row's gradient. of() returns the gradient with respect to the logit of one class.
struct DistillationSlopes {
  float factor, scale, lse, wanted;

  PROTRAIN_HD float of(float x, float t) const { return factor * (exp(x * scale - lse) - exp(t * scale - wanted)); }
};

struct Distillation {
  explicit Distillation(double t) : temperature(t), scale(static_cast<float>(1 / t)) {}

  // Returns a row's loss. `apart` is the sum of apart() over all classes, `lse` is lse(x), and `wanted` is lse(t).
  PROTRAIN_HD double loss(double apart, double lse, double wanted) const {
    return temperature * temperature * (apart + lse - wanted);
  }
  // Returns p (t - x) / T for one class. `wanted` is lse(t). Returns 0 if the teacher excludes the class with a logit
  // of -inf.
  PROTRAIN_HD float apart(float x, float t, float wanted) const {
    const float p = exp(t * scale - wanted), term = p * ((t - x) * scale);
    return p == 0 ? 0.0f : term;
  }
  // Returns the numbers that give a row's gradient. `factor` is the gradient of the row's loss.
  PROTRAIN_HD DistillationSlopes slopes(float factor, float lse, float wanted) const {
    return {factor * static_cast<float>(temperature), scale, lse, wanted};
  }

  double temperature;
  float scale;  // 1 / T
};

}  // namespace protrain::arith
