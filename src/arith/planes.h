// A float32 master weight as two planes of 16 bits: the upper one is the nearest bfloat16, which a step computes with,
// and the lower one what the optimizer adds to it. Nothing is stored twice, and nothing is rounded away:
//   bits(master) = (high << 16) + sign_extend(low),   high = nearest bfloat16, ties away from zero
// A NaN becomes 0x7FC00000: 0x7FFF8000 and those above it would round up into -0.
#pragma once

#include <bit>
#include <cstdint>

#include "arith/bf16.h"

namespace protrain::arith {

struct Planes {
  bf16 high;
  std::uint16_t low;
};

PROTRAIN_HD Planes split(float master) {
  const std::uint32_t bits = master != master ? 0x7FC00000u : std::bit_cast<std::uint32_t>(master);
  return {{static_cast<std::uint16_t>((bits + 0x8000u) >> 16)}, static_cast<std::uint16_t>(bits)};
}

PROTRAIN_HD float joined(bf16 high, std::uint16_t low) {
  const auto extended = static_cast<std::uint32_t>(std::int32_t{static_cast<std::int16_t>(low)});
  return std::bit_cast<float>((std::uint32_t{high.bits} << 16) + extended);
}

}  // namespace protrain::arith
