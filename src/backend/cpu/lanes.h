// Sums, maxima and minima along a row, at vector speed and with the same bits on every instruction set. The row's
// length alone fixes the order: element i goes to lane i % kLanes, then the lanes are folded in halves.
#pragma once

#include <cstdint>
#include <limits>

#include "backend/common/clones.h"

namespace protrain::backend::cpu {

inline constexpr std::int64_t kLanes = 32;

// Reduces term(0) .. term(count - 1) to one number, by sum, maximum or minimum. Join::kStart is the neutral element of
// this operation.
template <typename Join, typename Term>
PROTRAIN_INLINE float fold_lanes(std::int64_t count, Join join, Term term) {
  float lanes[kLanes];
  for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] = Join::kStart;
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] = join(lanes[l], term(i + l));
  for (std::int64_t l = 0; i + l < count; ++l) lanes[l] = join(lanes[l], term(i + l));
  for (std::int64_t width = kLanes / 2; width > 0; width /= 2)
    for (std::int64_t l = 0; l < width; ++l) lanes[l] = join(lanes[l], lanes[l + width]);
  return lanes[0];
}

struct Plus {
  static constexpr float kStart = 0;
  PROTRAIN_INLINE float operator()(float a, float b) const { return a + b; }
};
struct Larger {  // a NaN on either side is the result
  static constexpr float kStart = -std::numeric_limits<float>::infinity();
  PROTRAIN_INLINE float operator()(float a, float b) const { return b > a || b != b ? b : a; }
};
struct Smaller {  // a NaN on either side is the result
  static constexpr float kStart = std::numeric_limits<float>::infinity();
  PROTRAIN_INLINE float operator()(float a, float b) const { return b < a || b != b ? b : a; }
};

template <typename Term>
PROTRAIN_INLINE float lane_sum(std::int64_t count, Term term) {
  return fold_lanes(count, Plus{}, term);
}
template <typename Term>
PROTRAIN_INLINE float lane_max(std::int64_t count, Term term) {
  return fold_lanes(count, Larger{}, term);
}

}  // namespace protrain::backend::cpu
