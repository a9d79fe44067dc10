// Folds: the threads of a block join their values into one, by sum, maximum or minimum, and all threads get the result.
// The order is a fixed tree over the threads, so it depends on the block's size alone.
#pragma once

#include <limits>
#include <type_traits>

#include "arith/math.h"
#include "backend/cuda/launch.h"

namespace protrain::backend::cuda {

struct Plus {
  template <typename T>
  PROTRAIN_HD static T start() {
    return T{};
  }
  template <typename T>
  PROTRAIN_HD static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));  // wraps
    else
      return a + b;
  }
};
struct Larger {  // if a or b is NaN, the result is NaN
  template <typename T>
  PROTRAIN_HD static T start() {
    return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::min();
  }
  template <typename T>
  PROTRAIN_HD static T of(T a, T b) {
    return b > a || b != b ? b : a;
  }
};
struct Smaller {  // if a or b is NaN, the result is NaN
  template <typename T>
  PROTRAIN_HD static T start() {
    return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
  }
  template <typename T>
  PROTRAIN_HD static T of(T a, T b) {
    return b < a || b != b ? b : a;
  }
};

// Two sums that are folded together, so that the threads synchronize once for both.
struct SumPair {
  float first, second;
  PROTRAIN_HD friend SumPair operator+(SumPair a, SumPair b) { return {a.first + b.first, a.second + b.second}; }
};
__device__ inline SumPair from_lane(SumPair value, int lane) {
  return {from_lane(value.first, lane), from_lane(value.second, lane)};
}
__device__ inline SumPair from_lane_xor(SumPair value, int mask) {
  return {from_lane_xor(value.first, mask), from_lane_xor(value.second, mask)};
}

// Joins the values of a block's threads, and returns the result to all of them. All threads of the block must call it.
template <typename Join, typename T>
__device__ T block_fold(T value) {
  __shared__ T warps[1024 / kWarp];
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = Join::of(value, from_lane_xor(value, mask));
  const int count = static_cast<int>(blockDim.x) / kWarp;
  if (count == 1) return from_lane(value, 0);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warps[0];
  for (int warp = 1; warp < count; ++warp) value = Join::of(value, warps[warp]);
  __syncthreads();  // the next fold may use the same memory
  return value;
}

// Joins term(0) ... term(count - 1), and returns the result to all threads of the block. Each thread computes some of
// the terms. All threads of the block must call it.
template <typename Join, typename T, typename Term>
__device__ T fold_terms(std::int64_t count, Term term) {
  T value = Join::template start<T>();
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) value = Join::of(value, static_cast<T>(term(i)));
  return block_fold<Join>(value);
}

// Returns the number of threads for a block that works on one row of `width` elements.
inline int row_threads(std::int64_t width) { return width <= 64 ? 32 : width <= 256 ? 64 : width <= 1024 ? 128 : 256; }

}  // namespace protrain::backend::cuda
