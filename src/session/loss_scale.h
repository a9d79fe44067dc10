// LossScale: the factor of a step's loss in float16. Gradients are smaller than weights; the factor keeps them above
// the smallest float16. It is a power of two, so scaling and unscaling round nothing. It is halved when gradients
// overflow, and doubled after a long time without overflow.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace protrain::session {

class LossScale {
 public:
  static constexpr std::uint64_t kFirst = 1 << 16, kLeast = 1, kMost = 1 << 24;
  static constexpr std::uint64_t kPatience = 2000;  // applied steps in a row before the scale is doubled

  LossScale() = default;
  // The state from a checkpoint.
  LossScale(std::uint64_t value, std::uint64_t applied) : value_(value), applied_(applied) {}
  bool is_valid() const {
    return std::has_single_bit(value_) && value_ >= kLeast && value_ <= kMost && applied_ < kPatience;
  }

  std::uint64_t value() const { return value_; }
  std::uint64_t applied() const { return applied_; }

  // Halves the scale, because gradients overflowed. Returns false if it cannot get smaller.
  bool shrink() {
    if (value_ == kLeast) return false;
    value_ /= 2;
    return true;
  }
  // Counts a finished step. Doubles the scale after kPatience applied steps in a row.
  void count(bool was_applied) {
    applied_ = was_applied ? applied_ + 1 : 0;
    if (applied_ < kPatience) return;
    applied_ = 0;
    value_ = std::min(2 * value_, kMost);
  }

 private:
  std::uint64_t value_ = kFirst;
  std::uint64_t applied_ = 0;  // applied steps in a row
};

}  // namespace protrain::session
