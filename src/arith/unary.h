// Operators on one float. Each is a struct with the operator's name and two functions: value(), and slope(), which is
// the derivative. The value of a NaN is a NaN. Where the derivative does not exist, the slope is PyTorch's.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// An operator's attributes: a is alpha or min, b is beta, gamma or max.
struct Coefficients {
  float a = 0, b = 0;
};

// One struct of static functions per operator: `value` and `slope` are expressions in x, k.a and k.b.
#define PROTRAIN_UNARY(NAME, VALUE, SLOPE)                                                                      \
  struct NAME {                                                                                                 \
    PROTRAIN_HD static float value([[maybe_unused]] float x, [[maybe_unused]] Coefficients k) { return VALUE; } \
    PROTRAIN_HD static float slope([[maybe_unused]] float x, [[maybe_unused]] Coefficients k) { return SLOPE; } \
  }

PROTRAIN_HD float limited(float x, float low, float high) {
  const float raised = x < low ? low : x;
  return raised > high ? high : raised;
}
PROTRAIN_HD float sign(float x) { return x > 0 ? 1.0f : (x < 0 ? -1.0f : x); }
PROTRAIN_HD float one_if(bool holds) { return holds ? 1.0f : 0.0f; }

inline constexpr float kSqrtHalf = 0.70710678118654752f;       // sqrt(1/2)
inline constexpr float kNormalDensity = 0.39894228040143268f;  // 1 / sqrt(2 pi)
inline constexpr float kGeluScale = 0.79788456080286536f;      // sqrt(2 / pi)
inline constexpr float kGeluCube = 0.044715f;

PROTRAIN_UNARY(Neg, -x, -1.0f);
PROTRAIN_UNARY(Abs, absolute(x), sign(x));
PROTRAIN_UNARY(Exp, exp(x), exp(x));
PROTRAIN_UNARY(Log, log(x), 1.0f / x);
PROTRAIN_UNARY(Sqrt, __builtin_sqrtf(x), 0.5f / __builtin_sqrtf(x));
PROTRAIN_UNARY(Reciprocal, 1.0f / x, -(1.0f / x) * (1.0f / x));
PROTRAIN_UNARY(Erf, erf(x), 1.1283791670955126f * exp(-x * x));  // 2 / sqrt(pi)
PROTRAIN_UNARY(Sigmoid, sigmoid(x), sigmoid(x) * sigmoid(-x));
PROTRAIN_UNARY(Relu, x < 0 ? 0.0f : x, one_if(x > 0));
PROTRAIN_UNARY(LeakyRelu, x > 0 ? x : k.a * x, x > 0 ? 1.0f : k.a);
PROTRAIN_UNARY(Elu, x > 0 ? x : k.a * expm1(x), x > 0 ? 1.0f : k.a * exp(x));
PROTRAIN_UNARY(Celu, x > 0 ? x : k.a * expm1(x / k.a), x > 0 ? 1.0f : exp(x / k.a));
PROTRAIN_UNARY(Selu, k.b *(x > 0 ? x : k.a * expm1(x)), k.b *(x > 0 ? 1.0f : k.a * exp(x)));
PROTRAIN_UNARY(Softplus, softplus(x), sigmoid(x));
PROTRAIN_UNARY(HardSigmoid, limited(fma(k.a, x, k.b), 0, 1), fma(k.a, x, k.b) > 0 && fma(k.a, x, k.b) < 1 ? k.a : 0.0f);
PROTRAIN_UNARY(HardSwish, x *limited(x *(1 / 6.0f) + 0.5f, 0, 1),
               x <= -3 ? 0.0f : (x >= 3 ? 1.0f : x * (1 / 3.0f) + 0.5f));
PROTRAIN_UNARY(Sin, __builtin_sinf(x), __builtin_cosf(x));
PROTRAIN_UNARY(Cos, __builtin_cosf(x), -__builtin_sinf(x));
PROTRAIN_UNARY(Tan, __builtin_tanf(x), 1.0f / (__builtin_cosf(x) * __builtin_cosf(x)));
PROTRAIN_UNARY(Asin, __builtin_asinf(x), 1.0f / __builtin_sqrtf(fma(-x, x, 1.0f)));
PROTRAIN_UNARY(Acos, __builtin_acosf(x), -1.0f / __builtin_sqrtf(fma(-x, x, 1.0f)));
PROTRAIN_UNARY(Atan, __builtin_atanf(x), 1.0f / fma(x, x, 1.0f));
PROTRAIN_UNARY(Sinh, __builtin_sinhf(x), __builtin_coshf(x));
PROTRAIN_UNARY(Cosh, __builtin_coshf(x), __builtin_sinhf(x));
PROTRAIN_UNARY(Asinh, __builtin_asinhf(x), 1.0f / __builtin_sqrtf(fma(x, x, 1.0f)));
PROTRAIN_UNARY(Acosh, __builtin_acoshf(x), 1.0f / __builtin_sqrtf(fma(x, x, -1.0f)));
PROTRAIN_UNARY(Atanh, __builtin_atanhf(x), 1.0f / fma(-x, x, 1.0f));
PROTRAIN_UNARY(Silu, x *sigmoid(x), sigmoid(x) * fma(x, sigmoid(-x), 1.0f));
PROTRAIN_UNARY(Clip, limited(x, k.a, k.b), one_if(!(x <= k.a) && !(x >= k.b)));
PROTRAIN_UNARY(ThresholdedRelu, x <= k.a ? 0.0f : x, one_if(x > k.a));
PROTRAIN_UNARY(Floor, __builtin_floorf(x), 0.0f);
PROTRAIN_UNARY(Ceil, __builtin_ceilf(x), 0.0f);
PROTRAIN_UNARY(Round, __builtin_rintf(x), 0.0f);  // ties to even
PROTRAIN_UNARY(Sign, sign(x), 0.0f);
#undef PROTRAIN_UNARY

struct Tanh {
  PROTRAIN_HD static float value(float x, Coefficients) { return tanh(x); }
  PROTRAIN_HD static float slope(float x, Coefficients) {
    const float y = tanh(x);
    return fma(-y, y, 1.0f);
  }
};

struct Softsign {
  PROTRAIN_HD static float value(float x, Coefficients) { return x / (1.0f + absolute(x)); }
  PROTRAIN_HD static float slope(float x, Coefficients) {
    const float r = 1.0f / (1.0f + absolute(x));
    return r * r;
  }
};

// Mish is x tanh(ln(1 + e^x)). With n = e^x (e^x + 2), the tanh is n / (n + 2).
struct Mish {
  PROTRAIN_HD static float gate(float x) {
    const float e = exp(x > 20 ? 20.0f : x);  // above 20 the gate is 1
    const float n = e * (e + 2.0f);
    return n / (n + 2.0f);
  }
  PROTRAIN_HD static float value(float x, Coefficients) { return x * gate(x); }
  PROTRAIN_HD static float slope(float x, Coefficients) {
    const float t = gate(x);
    return fma(x * sigmoid(x), fma(-t, t, 1.0f), t);
  }
};

struct Gelu {
  PROTRAIN_HD static float below(float x) { return fma(0.5f, erf(x * kSqrtHalf), 0.5f); }  // normal CDF
  PROTRAIN_HD static float value(float x, Coefficients) { return x * below(x); }
  PROTRAIN_HD static float slope(float x, Coefficients) {
    return fma(x * kNormalDensity, exp(-0.5f * x * x), below(x));
  }
};

// GeluTanh is 1/2 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3). That is the same as x sigmoid(2 u).
struct GeluTanh {
  PROTRAIN_HD static float twice_u(float x) { return 2 * kGeluScale * x * fma(kGeluCube * x, x, 1.0f); }
  PROTRAIN_HD static float value(float x, Coefficients) { return x * sigmoid(twice_u(x)); }
  PROTRAIN_HD static float slope(float x, Coefficients) {
    const float u = twice_u(x), s = sigmoid(u), rest = sigmoid(-u);
    return s * fma(2 * kGeluScale * x * rest, fma(3 * kGeluCube * x, x, 1.0f), 1.0f);
  }
};

}  // namespace protrain::arith
