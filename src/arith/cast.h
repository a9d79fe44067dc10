// Conversion between all types that can be cast. A float outside an integer's range becomes the nearest integer, and
// NaN becomes 0. A value of any type is rounded only once on its way to a narrow float.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "arith/f16.h"

namespace protrain::arith {

using Bool = std::uint8_t;  // the byte of a bool, true unless 0; uint8 tensors are never cast, so uint8 means bool here

// Rounds `value` to float32, to odd: the last bit of an inexact result is set to 1. Rounding the result again, to a
// narrower type, then gives the same as rounding `value` once.
PROTRAIN_HD float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (static_cast<double>(nearest) != value && value == value && std::isfinite(nearest)) {
    if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
    bits |= 1;
  }
  return std::bit_cast<float>(bits);
}

template <typename To, typename From>
PROTRAIN_HD To converted(From value) {
  if constexpr (std::is_same_v<To, Bool>) {
    return operand(value) != 0;
  } else if constexpr (std::is_same_v<From, Bool>) {
    return result<To>(value != 0 ? 1.0f : 0.0f);
  } else if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (!std::is_arithmetic_v<From>) {
    return converted<To>(widened(value));
  } else if constexpr (!std::is_arithmetic_v<To>) {
    if constexpr (std::is_same_v<From, float>)
      return narrowed<To>(value);
    else
      return narrowed<To>(rounded_to_odd(static_cast<double>(value)));
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min()), kPast = -kLow;  // powers of two: exact
    const To inside = static_cast<To>(value >= kLow && value < kPast ? value : From{0});
    return value >= kPast ? std::numeric_limits<To>::max() : (value < kLow ? std::numeric_limits<To>::min() : inside);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace protrain::arith
