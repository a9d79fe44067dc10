// Fast approximations: functions that a GPU computes in one instruction, and activations made of them. They are several
// times as fast as the formulas in arith/unary.h, but do not give the CPU's bits. Each function's error is stated at
// the function.
//   Kernels use them for results in bfloat16, whose rounding errors are larger, and for the softmax of attention on
// tensor cores. In tests, functions of the host's C library take the place of the instructions.
#pragma once

#include <bit>
#include <type_traits>

#include "arith/bf16.h"
#include "arith/unary.h"
#include "backend/cuda/launch.h"

namespace protrain::backend::cuda {

using Pair = std::uint32_t;  // two bfloat16, the first in the lower half

#if defined(__CUDACC__)
__device__ inline Pair narrowed_pair(float first, float second) {
  Pair pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
// Returns 2^x with an error of at most two units in the last place. Results below 2^-126 become 0.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Returns 1 / x with an error of at most one unit in the last place. Results below 2^-126 become 0.
__device__ inline float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// Returns tanh(x) with a relative error of at most 2^-11. For comparison, rounding to bfloat16 has relative errors of
// up to 2^-8.
__device__ inline float hyperbolic_tangent(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
inline Pair narrowed_pair(float first, float second) {
  return static_cast<Pair>(arith::to_bf16(second).bits) << 16 | arith::to_bf16(first).bits;
}
inline float power_of_two(float x) { return ::exp2f(x); }
inline float reciprocal(float x) { return 1.0f / x; }
inline float hyperbolic_tangent(float x) { return ::tanhf(x); }
#endif

namespace approximate {
using arith::absolute;
using arith::Coefficients;
using arith::fma;

inline constexpr float kLog2E = 1.4426950408889634f;

__device__ inline float sigmoid(float x) { return reciprocal(1.0f + power_of_two(-kLog2E * x)); }

struct Sigmoid {
  __device__ static float value(float x, Coefficients) { return sigmoid(x); }
  __device__ static float slope(float x, Coefficients) {
    const float e = power_of_two(-kLog2E * absolute(x)), s = reciprocal(1.0f + e);
    return e * s * s;
  }
};

struct Tanh {
  __device__ static float value(float x, Coefficients) { return hyperbolic_tangent(x); }
  __device__ static float slope(float x, Coefficients) { return 4 * Sigmoid::slope(2 * x, {}); }
};

struct Silu {
  __device__ static float value(float x, Coefficients) { return x * sigmoid(x); }
  __device__ static float slope(float x, Coefficients) {
    const float s = sigmoid(x);
    return s * fma(x, 1.0f - s, 1.0f);
  }
};

// GeluTanh is x * sigmoid(2 u), as in arith::GeluTanh, with u = kGeluScale * (x + kGeluCube * x^3).
struct GeluTanh {
  __device__ static float sigmoid_of_twice_u(float x) {
    constexpr float kLinear = -2 * kLog2E * arith::kGeluScale;
    return reciprocal(1.0f + power_of_two(x * fma(kLinear * arith::kGeluCube, x * x, kLinear)));
  }
  __device__ static float value(float x, Coefficients) { return x * sigmoid_of_twice_u(x); }
  __device__ static float slope(float x, Coefficients) {
    constexpr float kLinear = 2 * arith::kGeluScale;
    const float s = sigmoid_of_twice_u(x);
    return s * fma(x * (1.0f - s), fma(3 * kLinear * arith::kGeluCube, x * x, kLinear), 1.0f);
  }
};

// Gelu is x P(x), and its derivative is P(x) + x p(x), where P is the CDF of the normal distribution and p its density.
// For a >= 0 the tail P(-a) is e^(-a^2 / 2) times a polynomial in t = 1 / (1 + 0.29875 a), a minimax fit of relative
// error 2^-12.
struct Gelu {
  __device__ static float density(float a) { return power_of_two(-0.5f * kLog2E * a * a); }  // p sqrt(2 pi)
  __device__ static float tail(float a) {                                                    // P(-a) / density(a)
    const float t = reciprocal(fma(0.29875f, a, 1.0f));
    return t * arith::polynomial(t, 0x1.b6fcfep-3f, 0x1.da2788p-6f, 0x1.1d8380p-3f, 0x1.e0e17ep-4f);
  }
  __device__ static float value(float x, Coefficients) {
    const float size = absolute(x), a = size < 16.0f ? size : 16.0f;  // the tail is 0 beyond; inf * 0 would be NaN
    return fma(-a, density(a) * tail(a), x < 0 ? 0.0f : x);
  }
  __device__ static float slope(float x, Coefficients) {
    const float a = absolute(x), below = density(a) * fma(-arith::kNormalDensity, a, tail(a));
    return x < 0 ? below : 1.0f - below;
  }
};

template <typename F>
struct Of {
  using type = F;
};
template <>
struct Of<arith::Sigmoid> {
  using type = Sigmoid;
};
template <>
struct Of<arith::Tanh> {
  using type = Tanh;
};
template <>
struct Of<arith::Silu> {
  using type = Silu;
};
template <>
struct Of<arith::GeluTanh> {
  using type = GeluTanh;
};
template <>
struct Of<arith::Gelu> {
  using type = Gelu;
};
}  // namespace approximate

// The formula of activation F for elements of type T: for bfloat16 the approximation, if there is one; else the formula
// in arith/unary.h.
template <typename F, typename T>
using Formula =
    typename std::conditional_t<std::is_same_v<T, arith::bf16>, approximate::Of<F>, std::type_identity<F>>::type;

}  // namespace protrain::backend::cuda
