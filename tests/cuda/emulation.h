// CUDA's words for the host's compiler. A block's threads are fibers on one thread of the system: each runs until it
// waits for the others, so that __syncthreads and shuffles meet where they would meet on a GPU. Blocks run one after
// another. What a GPU would leave undefined ends the test: threads that wait at different places, or that leave while
// others wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

struct CUstream_st;

namespace protrain::emulation {

struct Coordinate {
  unsigned x = 0;
};

struct Grid {
  std::int64_t blocks;
  int threads;
  std::size_t shared_bytes;
};

// Appends work to a stream; it is done when somebody waits for it (tests/cuda/runtime.cpp).
void append(CUstream_st *stream, std::function<void()> work);

// Runs `thread` for every thread of the grid.
void run(const Grid &grid, const std::function<void()> &thread);

void *shared_memory();
void meet_block();
void meet_warp();
inline constexpr std::size_t kExchangeBytes = 24;
void *exchange_place(int lane);  // kExchangeBytes of a lane of this thread's warp; -1: its own

// read(value_of), where value_of(lane) is what that lane of this thread's warp brings; all its threads call it
// together, and none goes on before all have read.
template <typename T, typename Read>
void exchange(const T &value, Read read) {
  static_assert(sizeof(T) <= kExchangeBytes);
  std::memcpy(exchange_place(-1), &value, sizeof(T));
  meet_warp();
  read([](int lane) {
    T other;
    std::memcpy(&other, exchange_place(lane), sizeof(T));
    return other;
  });
  meet_warp();
}
template <typename T>
T exchanged(T value, int lane) {
  exchange(value, [&](auto value_of) { value = value_of(lane); });
  return value;
}

// Copies `bytes`, or that many zeros where `from` is nullptr, some time before the thread has waited: at once where
// threads run in ascending order, only when waited for where in descending.
void copy_async(void *to, const void *from, std::size_t bytes);
void wait_for_copies();

// Threads of a block run in ascending order, or in descending: what depends on it is a race.
void run_backwards(bool backwards);

// A launch of a kernel: the first one takes memory of the device for it, as a driver that loads lazily does. Throws
// where there is none left, or where it would be loaded while a stream is captured.
void load(CUstream_st *stream, const void *kernel);
// Memory of the device in all; kernels that were loaded before stay.
inline constexpr std::uint64_t kDeviceMemory = std::uint64_t{8} << 30;
void limit_memory(std::uint64_t bytes);
void unload_kernels();  // each takes its memory anew

// Registrations of more bytes than `each` are refused, and those that would make it more than `all`.
void limit_pinning(std::uint64_t each, std::uint64_t all);
inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

// Captures of streams fail, once they are to end.
void refuse_captures(bool refuse);

// Dynamic shared memory of a block, bytes: a server's GPU, and what those of desktops have.
inline constexpr std::size_t kMostShared = 227 << 10, kDesktopShared = 99 << 10;
void limit_shared(std::size_t bytes);

}  // namespace protrain::emulation

extern protrain::emulation::Coordinate threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads() { protrain::emulation::meet_block(); }
inline void __syncwarp() { protrain::emulation::meet_warp(); }
inline void __threadfence_system() {}  // one thread of the system does it all

template <typename T>
T atomicCAS(T *at, T expected, T desired) {
  const T old = *at;
  if (old == expected) *at = desired;
  return old;
}
