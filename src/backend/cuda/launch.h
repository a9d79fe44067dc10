// Keywords and functions for kernels, and the function that launches a kernel. nvcc compiles the kernels as CUDA. In
// tests the host's compiler compiles them, so that they also run on machines without a GPU. CUDA's keywords then come
// from the header that the macro PROTRAIN_EMULATION names. Grids and blocks have one dimension; blocks are whole warps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define PROTRAIN_UNROLL _Pragma("unroll")  // arrays stay in registers only if their indices are constants
#define PROTRAIN_KEEP_LOOP _Pragma("unroll 1")
#else
#include PROTRAIN_EMULATION
#define PROTRAIN_UNROLL
#define PROTRAIN_KEEP_LOOP
#endif

#include "backend/cuda/runtime.h"
#include "base/error.h"

namespace protrain::backend::cuda {

inline constexpr int kWarp = 32;
inline constexpr int kBlock = 256;  // threads in a block, unless there is a reason for another number
// Bytes of shared memory that a block gets without allow_shared().
inline constexpr std::size_t kSharedAtHand = 48 << 10;

struct Grid {
  std::int64_t blocks;  // 0: nothing is launched
  int threads = kBlock;
  std::size_t shared_bytes = 0;  // dynamic shared memory
};

// Returns grid.blocks in CUDA's type. Throws Code::unsupported if there are more blocks than CUDA takes.
inline unsigned block_count(const Grid &grid) {
  require(grid.blocks <= std::numeric_limits<std::int32_t>::max(), Code::unsupported, "device",
          "a kernel of {} blocks; a GPU takes 2147483647", grid.blocks);
  return static_cast<unsigned>(grid.blocks);
}

// If kEmulated is true, work is cut into smaller parts, so that small tests have several parts.
#if defined(__CUDACC__)
inline constexpr bool kEmulated = false;

template <typename... Parameters, typename... Arguments>
void launch(Stream stream, void (*kernel)(Parameters...), const Grid &grid, Arguments... arguments) {
  if (grid.blocks == 0) return;
  if (grid.shared_bytes > kSharedAtHand) allow_shared(reinterpret_cast<const void *>(kernel), grid.shared_bytes);
  kernel<<<block_count(grid), static_cast<unsigned>(grid.threads), grid.shared_bytes, stream>>>(
      static_cast<Parameters>(arguments)...);
  check_launch();
}

// Returns the launch's dynamic shared memory.
template <typename T>
__device__ T *shared_memory() {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return reinterpret_cast<T *>(shared_bytes);
}

template <typename T>
__device__ T from_lane(T value, int lane) {  // all threads of the warp call it together
  return __shfl_sync(0xFFFFFFFFu, value, lane);
}
template <typename T>
__device__ T from_lane_xor(T value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, value, mask);
}
#else
inline constexpr bool kEmulated = true;
template <typename... Parameters, typename... Arguments>
void launch(Stream stream, void (*kernel)(Parameters...), const Grid &grid, Arguments... arguments) {
  if (grid.blocks == 0) return;
  if (grid.shared_bytes > kSharedAtHand) allow_shared(nullptr, grid.shared_bytes);
  emulation::load(stream, reinterpret_cast<const void *>(kernel));
  emulation::append(stream, [=, blocks = block_count(grid)] {
    emulation::run({blocks, grid.threads, grid.shared_bytes}, [=] { kernel(static_cast<Parameters>(arguments)...); });
  });
}

template <typename T>
T *shared_memory() {
  return static_cast<T *>(emulation::shared_memory());
}
template <typename T>
T from_lane(T value, int lane) {
  return emulation::exchanged(value, lane);
}
template <typename T>
T from_lane_xor(T value, int mask) {
  return emulation::exchanged(value, static_cast<int>(threadIdx.x) % kWarp ^ mask);
}
#endif

__device__ inline std::int64_t thread_index() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t thread_count() { return static_cast<std::int64_t>(gridDim.x) * blockDim.x; }

}  // namespace protrain::backend::cuda
