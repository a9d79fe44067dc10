// Codes of eight bits, in which the moments of AdamW are stored. A block of neighbouring numbers shares a scale, the
// largest magnitude in the block. A code is an index into a list of fractions of the scale. The list begins with 0 and
// ends with 1, and within each octave its fractions are evenly spaced. Apart from 0 the fractions are floats with a
// short mantissa. So one shift of a float's bits finds the code of a number, and another shift finds the number of a
// code. Signed codes have 8 fractions in each of nearly 16 octaves. The second moment is never negative, so its codes
// need no sign and have 16 fractions in each of nearly 16 octaves. These codes stand for the square root of the moment,
// which spans half as many octaves as the moment itself.
// Rounding is stochastic: a number between two codes becomes either code, the nearer one more often. If each number
// became the nearest code, a moment would not change while each step moves it by less than half the distance between
// two codes. A hash of the number and of the step makes the choice, so it is the same on every device and under every
// plan.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

inline constexpr std::int64_t kCodedBlock = 256;  // numbers that share a scale

PROTRAIN_HD std::uint32_t mixed(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

template <int kMantissa, int kTop>  // bits of the mantissa; the code of 1
struct Octaves {
  static constexpr int kShift = 23 - kMantissa, kFirst = (127 << kMantissa) - kTop;

  // Returns the code just below or just above x, where 0 <= x <= 1. A hash of x and `dither` chooses between the two.
  // For any other x, even NaN, the result is some valid code.
  PROTRAIN_HD static std::int32_t code(float x, std::uint32_t dither) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(absolute(x));
    const std::int32_t code =
        static_cast<std::int32_t>((bits + (mixed(bits ^ dither) >> (32 - kShift))) >> kShift) - kFirst;
    return code < 0 ? 0 : code > kTop ? kTop : code;
  }
  PROTRAIN_HD static float number(std::int32_t code) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(code + kFirst) << kShift);
    return code > 0 ? x : 0.0f;
  }
};
using SignedOctaves = Octaves<3, 127>;
using RootOctaves = Octaves<4, 255>;

// signed_code() and root_code() return the code of a number under a block's scale. The scale is not 0.
PROTRAIN_HD std::uint8_t signed_code(float x, float scale, std::uint32_t dither) {
  const std::int32_t sign = x < 0 ? 128 : 0;
  return static_cast<std::uint8_t>(SignedOctaves::code(x / scale, dither) | sign);
}
// Returns at least the code 1 if `root` is above 0, because the step divides by the decoded root.
PROTRAIN_HD std::uint8_t root_code(float root, float scale, std::uint32_t dither) {
  const std::int32_t code = RootOctaves::code(root / scale, dither);
  return static_cast<std::uint8_t>(code == 0 && root > 0 ? 1 : code);
}

PROTRAIN_HD float signed_number(std::uint8_t code, float scale) {
  const float x = SignedOctaves::number(code & 127) * scale;
  return code > 127 ? -x : x;
}
PROTRAIN_HD float root_number(std::uint8_t code, float scale) { return RootOctaves::number(code) * scale; }

// Returns the bits of |x| as an integer. Such integers compare like the magnitudes, and a NaN compares as larger than
// any number. So the maximum of a block does not depend on the order of comparison.
PROTRAIN_HD std::int32_t magnitude(float x) { return std::bit_cast<std::int32_t>(absolute(x)); }
// Returns a block's scale, from the largest magnitude() of its numbers. The scale is 1 if all numbers are 0.
PROTRAIN_HD float scale_of(std::int32_t largest) { return largest > 0 ? std::bit_cast<float>(largest) : 1.0f; }

}  // namespace protrain::arith
