// A float32 master weight, stored in two parts: the upper and the lower plane. A step computes with the upper plane
// alone. The optimizer joins both planes, so the master loses no bits. In bfloat16 both planes have 16 bits, and no bit
// is stored twice:
//   bits(master) = (high << 16) + sign_extend(low),   high = nearest bfloat16, ties away from zero
// split() first turns a NaN into 0x7FC00000, because NaNs from 0x7FFF8000 on would round up into -0. A float16 is not
// the upper half of a float32. So with float16 weights the lower plane is the whole master.
#pragma once

#include <bit>
#include <cstdint>

#include "arith/f16.h"

namespace protrain::arith {

template <typename T>
struct Planes;
template <>
struct Planes<bf16> {
  bf16 high;
  std::uint16_t low;
};
template <>
struct Planes<f16> {
  f16 high;
  float low;
};
template <typename T>
using LowPlane = decltype(Planes<T>::low);

template <typename T>
PROTRAIN_HD Planes<T> split(float master);
template <>
PROTRAIN_HD Planes<bf16> split<bf16>(float master) {
  const std::uint32_t bits = master != master ? 0x7FC00000u : std::bit_cast<std::uint32_t>(master);
  return {{static_cast<std::uint16_t>((bits + 0x8000u) >> 16)}, static_cast<std::uint16_t>(bits)};
}

template <>
PROTRAIN_HD Planes<f16> split<f16>(float master) {
  return {to_f16(master), master};
}

PROTRAIN_HD float joined(bf16 high, std::uint16_t low) {
  const auto extended = static_cast<std::uint32_t>(std::int32_t{static_cast<std::int16_t>(low)});
  return std::bit_cast<float>((std::uint32_t{high.bits} << 16) + extended);
}
PROTRAIN_HD float joined(f16, float low) { return low; }

}  // namespace protrain::arith
