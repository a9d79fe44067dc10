// LossScale: what a step's loss is multiplied by in float16, so that gradients, which are smaller than weights, stay
// above what float16 can hold. Powers of two: scaling and its undoing round nothing. It is halved when gradients
// overflow, and doubled when they have not for long.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace protrain::session {

class LossScale {
 public:
  static constexpr std::uint64_t kFirst = 1 << 16, kLeast = 1, kMost = 1 << 24;
  static constexpr std::uint64_t kPatience = 2000;  // steps that are applied in a row before it is doubled

  LossScale() = default;
  // As it was saved.
  LossScale(std::uint64_t value, std::uint64_t applied) : value_(value), applied_(applied) {}
  bool is_valid() const {
    return std::has_single_bit(value_) && value_ >= kLeast && value_ <= kMost && applied_ < kPatience;
  }

  std::uint64_t value() const { return value_; }
  std::uint64_t applied() const { return applied_; }

  // Gradients overflowed. False: it is as small as it gets.
  bool shrink() {
    if (value_ == kLeast) return false;
    value_ /= 2;
    return true;
  }
  // A step is over.
  void count(bool was_applied) {
    applied_ = was_applied ? applied_ + 1 : 0;
    if (applied_ < kPatience) return;
    applied_ = 0;
    value_ = std::min(2 * value_, kMost);
  }

 private:
  std::uint64_t value_ = kFirst;
  std::uint64_t applied_ = 0;  // steps in a row
};

}  // namespace protrain::session
