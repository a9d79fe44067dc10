// The optimizers' arithmetic for one element, as PyTorch does it, in float32. Every device gives the same bits, because
// a product and a sum are fused only where the code calls fma, and because sqrt and division round correctly.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// The numbers that the updates of one step share. The host computes them once, in double (backend/optimizer_numbers.h).
struct AdamW {
  float l2;                // the share of the weight that is added to the gradient
  float decay;             // the factor of the weight
  float beta1, rest1;      // beta1, 1 - beta1
  float beta2, rest2;      // beta2, 1 - beta2
  float root_correction2;  // sqrt(1 - beta2^t)
  float epsilon;
  float minus_step;      // -learning_rate / (1 - beta1^t)
  std::uint32_t dither;  // one number for each step; decides how moments in 8 bits are rounded (code8.h)
};

struct Sgd {
  float learning_rate, weight_decay, momentum;
  float rest;             // the share of the gradient that the momentum buffer takes
  float ahead, straight;  // the shares of the buffer and of the gradient in the step
};

struct Adagrad {
  float l2, epsilon, minus_step;
};

struct Lion {
  float decay;         // the factor of the weight
  float beta1, rest1;  // beta1, 1 - beta1: the mean whose sign is the step
  float beta2, rest2;  // beta2, 1 - beta2: the mean that is kept
  float learning_rate;
};

// The update of state that forward changes, such as a running mean. The update receives the state's new value instead
// of a gradient and stores it as the weight.
struct Assign {};

// The scaling and clipping of gradients before the update. The default values change no bit of a gradient. A NaN stays
// NaN.
struct Treatment {
  float scale = 1;
  float limit = HUGE_VALF;  // largest magnitude, after scaling
};

PROTRAIN_HD float treated(const Treatment &t, float g) {
  g *= t.scale;
  g = g > t.limit ? t.limit : g;
  return g < -t.limit ? -t.limit : g;
}

// Updates one weight w by AdamW. g: the scaled and clipped gradient, m and v: running means of g and g^2.
PROTRAIN_HD void update(const AdamW &c, float g, float &w, float &m, float &v) {
  g = fma(c.l2, w, g);
  m = fma(c.beta1, m, c.rest1 * g);
  v = fma(c.beta2, v, c.rest2 * g * g);
  const float root = __builtin_sqrtf(v) / c.root_correction2 + c.epsilon;
  w = fma(c.minus_step, m / root, w * c.decay);
}

// Updates one weight w by SGD. g: the scaled and clipped gradient, b: the momentum buffer, 0 before the first step.
PROTRAIN_HD void update(const Sgd &c, float g, float &w, float &b) {
  g = fma(c.weight_decay, w, g);
  b = fma(c.momentum, b, c.rest * g);
  w = fma(-c.learning_rate, fma(c.ahead, b, c.straight * g), w);
}

PROTRAIN_HD void update(const Sgd &c, float g, float &w) { w = fma(-c.learning_rate, fma(c.weight_decay, w, g), w); }

// Updates one weight w by Adagrad. g: the scaled and clipped gradient, h: the sum of g^2 over all steps.
PROTRAIN_HD void update(const Adagrad &c, float g, float &w, float &h) {
  g = fma(c.l2, w, g);
  h = fma(g, g, h);
  w = fma(c.minus_step, g / (__builtin_sqrtf(h) + c.epsilon), w);
}

// Updates one weight w by Lion. g: the scaled and clipped gradient, m: running mean of g.
PROTRAIN_HD void update(const Lion &c, float g, float &w, float &m) {
  const float mean = fma(c.beta1, m, c.rest1 * g);
  m = fma(c.beta2, m, c.rest2 * g);
  const float sign = mean > 0 ? 1.0f : mean < 0 ? -1.0f : mean;  // 0 and NaN stay
  w = fma(-c.learning_rate, sign, w * c.decay);
}

// Returns the new moving average: the old one, moved towards the weight w by `rest` times the distance between the old
// average and w.
PROTRAIN_HD float averaged(float rest, float w, float average) { return fma(rest, w - average, average); }

}  // namespace protrain::arith
