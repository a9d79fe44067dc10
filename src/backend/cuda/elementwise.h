// The building blocks of kernels that compute element by element. A walk finds an element in each broadcast operand. A
// pack holds neighbouring elements that one instruction loads or stores.
#pragma once

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "backend/common/layout.h"
#include "backend/cuda/approximate.h"
#include "backend/cuda/kernel.h"
#include "backend/cuda/launch.h"

namespace protrain::backend::cuda {

using arith::narrowed;
using arith::operand;
using arith::result;
using arith::widened;

inline constexpr std::int64_t kMostBlocks = 8192;  // most blocks of a grid; with more elements, threads loop

inline Grid grid_of(std::int64_t elements) { return {std::min(divided_up(elements, kBlock), kMostBlocks)}; }

template <typename Body>
__global__ void each_element(std::int64_t count, Body body) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) body(i);
}

// Calls body(i) for i < count. The body is a __device__ lambda that captures values, never `this`.
template <typename Body>
void each(Stream stream, std::int64_t count, Body body) {
  launch(stream, each_element<Body>, grid_of(count), count, body);
}

// Neighbouring elements that one instruction loads or stores. Arrays begin at multiples of kAlignment.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};
inline constexpr int kPack = 4;
template <typename T>
inline constexpr int kPackOf = sizeof(T) == 2 ? 8 : kPack;  // 16 bytes of float32 or bfloat16

template <int kCount>
using Width = std::integral_constant<int, kCount>;

// Calls body(first, Width) for each of this thread's packs of kCount elements, and for the remaining elements one by
// one.
template <int kCount = kPack, typename Body>
__device__ void for_packs(std::int64_t count, Body body) {
  const std::int64_t packs = count / kCount;
  for (std::int64_t p = thread_index(); p < packs; p += thread_count()) body(p * kCount, Width<kCount>{});
  const std::int64_t rest = packs * kCount + thread_index();
  if (rest < count) body(rest, Width<1>{});
}
inline Grid pack_grid(std::int64_t elements, int pack = kPack) { return grid_of(divided_up(elements, pack)); }

template <int kCount, typename T>
__device__ Pack<T, kCount> load(const T *at) {
  return *reinterpret_cast<const Pack<T, kCount> *>(at);
}
// Loads a pack of kCount neighbouring elements. If `repeats`, fills the pack with the one element at `at`.
template <int kCount, typename T>
__device__ Pack<T, kCount> load_or_repeat(const T *at, bool repeats) {
  if (!repeats) return load<kCount>(at);
  Pack<T, kCount> pack;
  PROTRAIN_UNROLL for (int j = 0; j < kCount; ++j) pack.at[j] = *at;
  return pack;
}
template <int kCount, typename T>
__device__ void store(T *at, const Pack<T, kCount> &pack) {
  *reinterpret_cast<Pack<T, kCount> *>(at) = pack;
}

// Returns the pack of value_of(0), value_of(1), ..., rounded to R. bfloat16 values are rounded in pairs, by one
// instruction for each pair.
template <typename R, int kCount, typename Make>
__device__ Pack<R, kCount> rounded_pack(Make value_of) {
  if constexpr (std::is_same_v<R, bf16> && kCount % 2 == 0) {
    Pack<Pair, kCount / 2> pairs;
    PROTRAIN_UNROLL for (int j = 0; j < kCount / 2; ++j) pairs.at[j] =
        narrowed_pair(value_of(2 * j), value_of(2 * j + 1));
    return std::bit_cast<Pack<R, kCount>>(pairs);
  } else {
    Pack<R, kCount> pack;
    PROTRAIN_UNROLL for (int j = 0; j < kCount; ++j) pack.at[j] = result<R>(value_of(j));
    return pack;
  }
}

// A Layout in the form that kernels take as an argument.
template <int N>
struct Walk {
  int rank;
  std::int64_t dims[kMostDims];
  std::int64_t strides[N][kMostDims];
};

template <std::size_t N>
Walk<static_cast<int>(N)> walk_of(const Layout<N> &layout) {  // `layout` is merged
  Walk<static_cast<int>(N)> walk{static_cast<int>(layout.dims.size()), {}, {}};
  for (std::size_t axis = 0; axis < layout.dims.size(); ++axis) {
    walk.dims[axis] = layout.dims[axis];
    for (std::size_t n = 0; n < N; ++n) walk.strides[n][axis] = layout.strides[n][axis];
  }
  return walk;
}

template <int N>
__device__ bool repeats(const Walk<N> &walk, int n) {
  return walk.strides[n][walk.rank - 1] == 0;
}

template <int N>
struct Offsets {
  std::int64_t at[N];
};

// Returns the quotient a / b, and sets `remainder`. If a and b fit into 32 bits, divides 32-bit numbers, which is
// several times as fast.
__device__ inline std::int64_t divide(std::int64_t a, std::int64_t b, std::int64_t &remainder) {
  if (((a | b) >> 32) == 0) {
    const auto x = static_cast<std::uint32_t>(a), y = static_cast<std::uint32_t>(b), quotient = x / y;
    remainder = x - quotient * y;
    return quotient;
  }
  remainder = a % b;
  return a / b;
}

// Returns for each operand the offset of the element that the walk reaches at `index`.
template <int N>
__device__ Offsets<N> offsets_of(const Walk<N> &walk, std::int64_t index) {
  Offsets<N> found{};
  PROTRAIN_KEEP_LOOP for (int axis = walk.rank - 1; axis > 0; --axis) {
    std::int64_t position = 0;
    index = divide(index, walk.dims[axis], position);
    for (int n = 0; n < N; ++n) found.at[n] += position * walk.strides[n][axis];
  }
  for (int n = 0; n < N; ++n) found.at[n] += index * walk.strides[n][0];
  return found;
}

__device__ inline void note(const Note &to, std::int64_t value, std::int64_t row) {
  // Reads `claimed` before trying to claim the fault. The read is one access for a whole warp, but each thread's atomic
  // operation crosses the bus on its own.
  if (*const_cast<volatile std::uint32_t *>(&to.at->claimed) != 0) return;
  if (atomicCAS(&to.at->claimed, std::uint32_t{0}, std::uint32_t{1}) != 0) return;
  to.at->value = value;
  to.at->row = row;
  __threadfence_system();
  *const_cast<volatile std::uint32_t *>(&to.at->source) = to.source;
}

// Returns the result for a value that cannot be computed: NaN for floats, 0 for other types.
template <typename T>
__device__ T not_a_value() {
  if constexpr (std::is_same_v<T, float>)
    return NAN;
  else if constexpr (std::is_same_v<T, bf16>)
    return bf16{0x7FC0};
  else
    return T{};
}

}  // namespace protrain::backend::cuda
