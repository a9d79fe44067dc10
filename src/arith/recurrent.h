// The activations of recurrent layers, by ONNX's names. Each derivative (slope) is computed from the activation's
// result instead of its argument, so backward needs only the results that forward has saved.
#pragma once

#include <string_view>

#include "arith/unary.h"

namespace protrain::arith {

// Defines an activation as a struct of two static functions. value() takes the argument x. slope() takes the result y
// and returns the derivative. k holds the coefficients alpha and beta.
#define PROTRAIN_ACTIVATION(NAME, VALUE, SLOPE)                                                                 \
  struct NAME {                                                                                                 \
    PROTRAIN_HD static float value([[maybe_unused]] float x, [[maybe_unused]] Coefficients k) { return VALUE; } \
    PROTRAIN_HD static float slope([[maybe_unused]] float y, [[maybe_unused]] Coefficients k) { return SLOPE; } \
  }

namespace recurrent {
PROTRAIN_ACTIVATION(Sigmoid, arith::sigmoid(x), fma(-y, y, y));
PROTRAIN_ACTIVATION(Tanh, arith::tanh(x), fma(-y, y, 1.0f));
PROTRAIN_ACTIVATION(Relu, arith::Relu::value(x, k), one_if(y > 0));
PROTRAIN_ACTIVATION(Affine, fma(k.a, x, k.b), k.a);
PROTRAIN_ACTIVATION(LeakyRelu, arith::LeakyRelu::value(x, k), y > 0 ? 1.0f : k.a);
PROTRAIN_ACTIVATION(ThresholdedRelu, arith::ThresholdedRelu::value(x, k), one_if(y != 0));
PROTRAIN_ACTIVATION(ScaledTanh, k.a *arith::tanh(k.b *x), k.a == 0 ? 0.0f : k.b * (k.a - y * y / k.a));
PROTRAIN_ACTIVATION(HardSigmoid, arith::HardSigmoid::value(x, k), y > 0 && y < 1 ? k.a : 0.0f);
PROTRAIN_ACTIVATION(Elu, arith::Elu::value(x, k), y > 0 ? 1.0f : y + k.a);
PROTRAIN_ACTIVATION(Softsign, arith::Softsign::value(x, k), (1.0f - absolute(y)) * (1.0f - absolute(y)));
PROTRAIN_ACTIVATION(Softplus, arith::softplus(x), -expm1(-y));
}  // namespace recurrent
#undef PROTRAIN_ACTIVATION

#define PROTRAIN_ACTIVATIONS(EACH) \
  EACH(Sigmoid)                    \
  EACH(Tanh)                       \
  EACH(Relu)                       \
  EACH(Affine)                     \
  EACH(LeakyRelu)                  \
  EACH(ThresholdedRelu)            \
  EACH(ScaledTanh)                 \
  EACH(HardSigmoid)                \
  EACH(Elu)                        \
  EACH(Softsign)                   \
  EACH(Softplus)

// An activation with its coefficients. Its argument is first limited to [-clip, clip]. The derivative is 0 where the
// argument is at a limit.
struct Activation {
#define PROTRAIN_NAME(NAME) NAME,
  enum class Kind : unsigned char { PROTRAIN_ACTIVATIONS(PROTRAIN_NAME) };
#undef PROTRAIN_NAME
  Kind kind = Kind::Sigmoid;
  Coefficients k = {};
  float clip = INFINITY;
  float low = -INFINITY, high = INFINITY;  // the values at the limits
};

template <typename F>
PROTRAIN_HD float value_of(const Activation &a, float x) {
  return F::value(limited(x, -a.clip, a.clip), a.k);
}
template <typename F>
PROTRAIN_HD float slope_of(const Activation &a, float y) {
  return y <= a.low || y >= a.high ? 0.0f : F::slope(y, a.k);
}

// Calls act(F{}), where F is the struct of the activation.
template <typename Act>
PROTRAIN_HD auto with_activation(Activation::Kind kind, Act act) {
#define PROTRAIN_CASE(NAME)    \
  case Activation::Kind::NAME: \
    return act(recurrent::NAME{});
  switch (kind) { PROTRAIN_ACTIVATIONS(PROTRAIN_CASE) }
#undef PROTRAIN_CASE
  return act(recurrent::Sigmoid{});
}

// Sets `kind` to the activation that ONNX calls `name`. Returns false if there is none.
inline bool find_activation(std::string_view name, Activation::Kind &kind) {
#define PROTRAIN_FIND(NAME) \
  if (name == #NAME) return kind = Activation::Kind::NAME, true;
  PROTRAIN_ACTIVATIONS(PROTRAIN_FIND)
#undef PROTRAIN_FIND
  return false;
}

}  // namespace protrain::arith
