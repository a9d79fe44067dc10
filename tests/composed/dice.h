// Random choices that depend on the seed alone, on every machine.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

namespace protrain::test {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}

  // splitmix64
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(n)); }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }  // both included
  bool chance(double p) { return static_cast<double>(bits() >> 11) * 0x1p-53 < p; }
  double real(double low, double high) { return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53; }
  template <typename T>
  const T &of(const std::vector<T> &list) {
    return list[static_cast<std::size_t>(below(static_cast<std::int64_t>(list.size())))];
  }
  template <typename T>
  T of(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<std::int64_t>(list.size()))];
  }

 private:
  std::uint64_t state_;
};

}  // namespace protrain::test
