// The report of a step's checks for numbers that are not finite.
#pragma once

#include <cstddef>
#include <cstdint>

namespace protrain::program {

// The word that a step's checks leave behind. It is 0 if all scalars that they checked were finite. Otherwise it names
// the first one that was not: the loss, or the norm of a parameter's gradient. Updates do nothing if the word is not 0.
// Kernels keep it as a uint32.
class StatusWord {
 public:
  constexpr StatusWord() = default;
  static constexpr StatusWord from_bits(std::uint32_t bits) { return StatusWord(bits); }
  static constexpr StatusWord loss() { return StatusWord(kLoss); }
  static constexpr StatusWord gradient(std::size_t parameter) {
    return StatusWord(static_cast<std::uint32_t>(kFirstGradient + parameter));
  }

  constexpr bool finite() const { return bits_ == kFinite; }
  constexpr bool names_loss() const { return bits_ == kLoss; }
  constexpr bool names_gradient() const { return bits_ >= kFirstGradient; }
  constexpr std::size_t parameter() const { return bits_ - kFirstGradient; }  // for a word that names a gradient
  constexpr std::uint32_t bits() const { return bits_; }
  bool operator==(const StatusWord &) const = default;

 private:
  static constexpr std::uint32_t kFinite = 0, kLoss = 1, kFirstGradient = 2;
  constexpr explicit StatusWord(std::uint32_t bits) : bits_(bits) {}

  std::uint32_t bits_ = kFinite;
};

}  // namespace protrain::program
