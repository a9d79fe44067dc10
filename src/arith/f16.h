// float16: 5 bits of exponent, 10 of mantissa. Conversion from float32 rounds to nearest, ties to even. Values past the
// largest become infinity, subnormals are not flushed to 0, and a NaN becomes a quiet NaN. The code has no branches,
// only integer operations and float32 additions. So the compiler can vectorise loops over it, and every processor gives
// the same bits.
#pragma once

#include "arith/bf16.h"

namespace protrain::arith {

struct f16 {
  std::uint16_t bits;
};

PROTRAIN_HD float widened(f16 x) {
  constexpr std::uint32_t kExponent = 0x1Fu << 23, kBias = (127u - 15u) << 23;
  const std::uint32_t magnitude = (x.bits & 0x7FFFu) << 13, exponent = magnitude & kExponent;
  const std::uint32_t normal = magnitude + kBias, infinite = normal + kBias;
  // Reads a subnormal as if its exponent were 1. That adds a leading bit of 2^-14, which is then subtracted without
  // rounding.
  const float subnormal = std::bit_cast<float>(normal + (1u << 23)) - 0x1p-14f;
  const std::uint32_t finite = exponent == 0 ? std::bit_cast<std::uint32_t>(subnormal) : normal;
  return std::bit_cast<float>((exponent == kExponent ? infinite : finite) | (x.bits & 0x8000u) << 16);
}

PROTRAIN_HD f16 to_f16(float x) {
  constexpr std::uint32_t kInfinity = 0xFFu << 23, kPast = (16u + 127u) << 23, kNormal = (127u - 14u) << 23;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  const std::uint32_t normal = (magnitude - ((127u - 15u) << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
  // Rounds `magnitude` to a subnormal float16 by adding 0.5: floats in [0.5, 1) are 2^-24 apart, as subnormal float16
  // are, so the sum is rounded to a multiple of 2^-24.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const std::uint32_t subnormal = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5f);
  const std::uint32_t finite = magnitude < kNormal ? subnormal : normal;
  const std::uint32_t beyond = magnitude > kInfinity ? 0x7E00u | ((magnitude >> 13) & 0x3FFu) : 0x7C00u;
  const std::uint32_t unsigned_bits = magnitude < kPast ? finite : beyond;
  return {static_cast<std::uint16_t>(unsigned_bits | (bits >> 16 & 0x8000u))};
}

template <>
PROTRAIN_HD f16 narrowed<f16>(float x) {
  return to_f16(x);
}

}  // namespace protrain::arith
