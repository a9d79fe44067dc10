// Stateless random numbers: Philox4x32-10 (Salmon et al. 2011). Seed, step and node select a stream; sample and element
// select a number in the stream. A number depends on nothing else. It is the same on every device, in any order of
// computation, and when it is recomputed. Changing these rules changes the results of every training with dropout.
#pragma once

#include <cmath>
#include <cstdint>

#include "arith/math.h"

namespace protrain::arith {

struct Words {
  std::uint32_t word[4];
};

struct Stream {
  std::uint32_t low, high;  // Philox's key
};

PROTRAIN_HD std::uint32_t low_half(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
PROTRAIN_HD std::uint32_t high_half(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// Returns 128 random bits for a counter. No two of a stream's 2^128 counters give the same bits.
PROTRAIN_HD Words philox(Words counter, Stream stream) {
  std::uint32_t a = counter.word[0], b = counter.word[1], c = counter.word[2], d = counter.word[3];
  std::uint32_t low = stream.low, high = stream.high;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = std::uint64_t{0xD2511F53u} * a, second = std::uint64_t{0xCD9E8D57u} * c;
    a = high_half(second) ^ b ^ low;
    b = low_half(second);
    c = high_half(first) ^ d ^ high;
    d = low_half(first);
    low += 0x9E3779B9u;   // from the golden ratio
    high += 0xBB67AE85u;  // from sqrt(3) - 1
  }
  return {{a, b, c, d}};
}

// Returns a hash of x: the last step of the generator SplitMix64. Different x have different hashes.
PROTRAIN_HD std::uint64_t scrambled(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Returns the stream of a node in a step. `node` is the node's attribute `key`. If two calls differ in only one of
// seed, step and node, their streams differ, because scrambled() gives different results for different arguments.
PROTRAIN_HD Stream stream_of(std::uint64_t seed, std::uint64_t step, std::uint64_t node) {
  const std::uint64_t key = scrambled(scrambled(scrambled(seed + 0x9E3779B97F4A7C15u) ^ step) ^ node);
  return {low_half(key), high_half(key)};
}

// Returns the random numbers of elements 4 * quad to 4 * quad + 3 of a sample.
PROTRAIN_HD Words numbers(Stream stream, std::uint64_t sample, std::uint64_t quad) {
  return philox({{low_half(quad), high_half(quad), low_half(sample), high_half(sample)}}, stream);
}

// Returns a float in (0, 1), the middle of one of 2^23 equal parts.
PROTRAIN_HD float uniform(std::uint32_t number) {
  return (static_cast<float>(number >> 9) + 0.5f) * (1.0f / static_cast<float>(1 << 23));
}

// Returns the least random number that keeps an element. Dropout keeps an element if its random number is at least 2^32
// * ratio. `ratio` is a float in [0, 1), so it is at most 1 - 2^-24, and the result fits into 32 bits.
PROTRAIN_HD std::uint32_t drop_below(float ratio) {
  return static_cast<std::uint32_t>(std::ceil(static_cast<double>(ratio) * 4294967296.0));
}
PROTRAIN_HD float keep_scale(float ratio) { return static_cast<float>(1.0 / (1.0 - static_cast<double>(ratio))); }

}  // namespace protrain::arith
