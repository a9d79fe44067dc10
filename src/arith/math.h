// Elementary functions on float, from one source for every device. They have no branches, so the compiler can vectorise
// loops over them. A product and a sum are fused only where the code calls fma, so every instruction set gives the same
// bits. The polynomials are minimax fits of relative error.
//   Largest errors over a fine sample of all floats, in units in the last place of the exact value: exp 1, log 1,
// tanh 1.4, erf 1.2, log1p 1.3, expm1 1.8, softplus 2, sigmoid 2.4 (tests/arith/math_test.cpp checks them). The bounds
// of softplus and sigmoid exclude subnormal results.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define PROTRAIN_HD __host__ __device__ __forceinline__
#else
#define PROTRAIN_HD [[gnu::always_inline]] inline
#endif

namespace protrain::arith {

PROTRAIN_HD float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
PROTRAIN_HD float absolute(float x) { return __builtin_fabsf(x); }
PROTRAIN_HD float copy_sign(float x, float sign) { return __builtin_copysignf(x, sign); }

// Returns the polynomial c[0] + c[1] x + c[2] x^2 + ... The caller passes the coefficients from the highest power down.
PROTRAIN_HD float polynomial(float, float c) { return c; }
template <typename... Rest>
PROTRAIN_HD float polynomial(float x, float highest, float next, Rest... rest) {
  return polynomial(x, fma(highest, x, next), rest...);
}

// Returns (e^r - 1 - r) / r^2, for |r| <= ln 2 / 2.
PROTRAIN_HD float exp_tail(float r) {
  return polynomial(r, 0x1.6a1a6ep-10f, 0x1.123fc6p-7f, 0x1.555916p-5f, 0x1.55548ap-3f, 0x1.fffffcp-2f);
}

PROTRAIN_HD float exp(float x) {
  constexpr float kRound = 0x1.8p23f;                                  // adding it leaves an integer in the low bits
  constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;  // ln 2; kLn2High * n is exact for |n| < 2^8
  x = x < -110.0f ? -110.0f : x;                                       // written so that NaN stays NaN
  x = x > 90.0f ? 90.0f : x;
  const float shifted = fma(x, 0x1.715476p+0f, kRound);
  const std::int32_t n = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRound);
  const float whole = shifted - kRound;
  const float r = fma(-kLn2Low, whole, fma(-kLn2High, whole, x));
  const float power = fma(exp_tail(r), r * r, r) + 1.0f;
  // Multiplies by 2^n in two steps, because 2^n itself may be too large or too small for a float.
  const std::int32_t half = n >> 1;
  const float first = std::bit_cast<float>((half + 127) << 23), second = std::bit_cast<float>((n - half + 127) << 23);
  return power * first * second;
}

PROTRAIN_HD float log(float x) {
  const bool tiny = x < 0x1p-126f;
  const float scaled = tiny ? x * 0x1p23f : x;
  // Splits `scaled` into 2^n * m, with m in [2/3, 4/3) instead of [1, 2). The variable `e` holds n * 2^23.
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(scaled);
  const std::uint32_t shift = (bits - std::bit_cast<std::uint32_t>(0x1.555556p-1f)) & 0xff800000u;
  const auto e = static_cast<std::int32_t>(shift);
  const float f = std::bit_cast<float>(bits - shift) - 1.0f;
  const float exponent = fma(static_cast<float>(e), 0x1p-23f, tiny ? -23.0f : 0.0f);
  const float tail = polynomial(f, -0x1.09312ep-3f, 0x1.1ed14ap-3f, -0x1.f25e3p-4f, 0x1.1ebe66p-3f, -0x1.55a75p-3f,
                                0x1.99d1f2p-3f, -0x1.fffe84p-3f, 0x1.555502p-2f, -0x1p-1f);
  const float finite = fma(exponent, 0x1.62e430p-1f, fma(tail, f * f, f));
  const float at_edge = x == 0 ? -INFINITY : (x > 0 ? x : NAN);  // for x = 0; infinity; negative or NaN
  return x > 0 && x < INFINITY ? finite : at_edge;
}

// e^x - 1
PROTRAIN_HD float expm1(float x) {
  const float tail = polynomial(x, 0x1.9febc8p-16f, 0x1.a2e05cp-13f, 0x1.6c198cp-10f, 0x1.110f76p-7f, 0x1.555552p-5f,
                                0x1.555556p-3f, 0.5f);
  return absolute(x) < 0.5f ? fma(tail, x * x, x) : exp(x) - 1.0f;
}

// ln(1 + x) for x >= 0
PROTRAIN_HD float log1p(float x) {
  const float y = 1.0f + x;
  const float lost = x - (y - 1.0f);  // lost to rounding in y
  return y < INFINITY ? log(y) + lost / y : y;
}

PROTRAIN_HD float tanh(float x) {
  const float a = absolute(x), s = x * x;
  const float tail =
      polynomial(s, 0x1.246dfcp-9f, -0x1.0ee55cp-7f, 0x1.6418d8p-6f, -0x1.b9fa8ap-5f, 0x1.11109ep-3f, -0x1.555554p-2f);
  const float large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return copy_sign(a < 0.6f ? fma(tail * s, a, a) : large, x);
}

PROTRAIN_HD float erf(float x) {
  const float s = x * x, a = absolute(x);
  const float t = a > 4.0f ? 4.0f : a;  // erf(4) rounds to 1
  const float small = polynomial(s, 0x1.5e062cp-14f, -0x1.aaa2d6p-11f, 0x1.54d42ap-8f, -0x1.b80ff2p-6f, 0x1.ce2e1cp-4f,
                                 -0x1.812744p-2f, 0x1.06eba8p-3f);
  // ln(erfc(t)) / t + 1
  const float large = polynomial(t, -0x1.78dd8ep-17f, 0x1.527c6ap-12f, -0x1.dd6cd8p-9f, 0x1.85515ep-6f, -0x1.b32574p-4f,
                                 -0x1.45328ep-1f, -0x1.0778e0p-3f);
  return a < 0.92f ? fma(small, x, x) : copy_sign(1.0f - exp(fma(large, t, -t)), x);
}

PROTRAIN_HD float sigmoid(float x) {
  const float e = exp(-absolute(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

// ln(1 + e^x)
PROTRAIN_HD float softplus(float x) { return (x < 0 ? 0.0f : x) + log1p(exp(-absolute(x))); }

}  // namespace protrain::arith
