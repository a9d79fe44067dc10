// Shuffle: an order of elements for each epoch, in which every element comes once. It is computed from the seed, the
// epoch and the position alone, so a run that resumes needs to know nothing but its step.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>

namespace tool {

class Shuffle {
 public:
  explicit Shuffle(std::uint64_t seed) : seed_(seed) {}

  // Returns the element at a position of the epoch; both are below `count`. A Feistel network permutes the numbers
  // below a power of four, the first power that is not below `count`. So a result can be `count` or more. It is then
  // permuted again until it is below `count`.
  std::uint64_t at(std::uint64_t epoch, std::uint64_t position, std::uint64_t count) const {
    const int half = (std::bit_width(count - 1) + 1) / 2;
    const std::uint64_t mask = (std::uint64_t{1} << half) - 1, key = mixed(seed_ ^ mixed(epoch));
    do {
      std::uint64_t left = position >> half, right = position & mask;
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        const std::uint64_t next = left ^ (mixed(key ^ mixed(right * kRounds + round)) & mask);
        left = right;
        right = next;
      }
      position = left << half | right;
    } while (position >= count);
    return position;
  }

 private:
  static constexpr std::uint64_t kRounds = 8;

  // SplitMix64's function: each bit of the result depends on all bits of x.
  static std::uint64_t mixed(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
    return x ^ (x >> 31);
  }

  std::uint64_t seed_;
};

// Returns the element that is taken as number `n`, counted from 0. Elements 0 to `count` - 1 are taken pass after pass,
// each once in every pass. Their order is that of `shuffle`, or ascending without a shuffle.
inline std::uint64_t taken(std::uint64_t n, std::uint64_t count, const std::optional<Shuffle> &shuffle) {
  return shuffle ? shuffle->at(n / count, n % count, count) : n % count;
}

}  // namespace tool
