// bfloat16: the upper half of a float32. Conversion rounds to nearest, ties to even, and turns a NaN into a quiet NaN.
// A GPU converts with one instruction, which turns every NaN into 0x7FFF.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "arith/math.h"

namespace protrain::arith {

struct bf16 {
  std::uint16_t bits;
};

PROTRAIN_HD float widened(bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
PROTRAIN_HD float widened(float x) { return x; }

PROTRAIN_HD bf16 to_bf16(float x) {
#if defined(__CUDA_ARCH__)
  bf16 rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(x));
  return rounded;
#else
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = x != x ? bits | 0x400000u : bits + 0x7FFFu + ((bits >> 16) & 1u);
  return {static_cast<std::uint16_t>(rounded >> 16)};
#endif
}

// Converts a float32 result to T, the type in which it is stored: rounds it if T is a narrow float.
template <typename T>
PROTRAIN_HD T narrowed(float x) {
  return x;
}
template <>
PROTRAIN_HD bf16 narrowed<bf16>(float x) {
  return to_bf16(x);
}

// operand() returns the value to compute with, and result() the value to store. Narrow floats are widened to float32
// for computing. Values of every other type stay as they are.
template <typename T>
PROTRAIN_HD auto operand(T x) {
  if constexpr (std::is_arithmetic_v<T>)
    return x;
  else
    return widened(x);
}
template <typename R, typename V>
PROTRAIN_HD R result(V value) {
  if constexpr (std::is_arithmetic_v<R>)
    return value;
  else
    return narrowed<R>(value);
}

}  // namespace protrain::arith
