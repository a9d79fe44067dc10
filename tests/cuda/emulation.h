// CUDA's keywords and functions, emulated for the host's compiler. Blocks run one after another. The threads of a block
// are fibers on one thread of the system. Each runs until it waits for others in __syncthreads or a shuffle. If threads
// wait at different places, or end while others wait, a GPU's behaviour would be undefined; here the program aborts.
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

// Appends work to a stream. The work runs only when the host waits for it (tests/cuda/runtime.cpp).
void append(CUstream_st *stream, std::function<void()> work);

// Runs `thread` for every thread of the grid.
void run(const Grid &grid, const std::function<void()> &thread);

void *shared_memory();
void meet_block();
void meet_warp();
inline constexpr std::size_t kExchangeBytes = 24;
void *exchange_place(int lane);  // memory of kExchangeBytes that a lane of this warp has; -1: that of this thread

// Exchanges values in a warp. Calls read(value_of), where value_of(lane) returns the `value` that the thread of that
// lane passed. All threads of the warp must call exchange() together, and none continues before all have read.
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

// Copies `bytes` bytes from `from`, or writes `bytes` zeros if `from` is nullptr. A GPU does this at some time before
// wait_for_copies() returns. The emulation does it at once if threads run in ascending order, and in wait_for_copies()
// if threads run in descending order. So tests in both orders find code that needs an early copy or a late one.
void copy_async(void *to, const void *from, std::size_t bytes);
void wait_for_copies();

// Makes the threads of a block run in descending or in ascending order. A result that depends on the order shows a
// race.
void run_backwards(bool backwards);

// Loads a kernel if this is its first launch. Loading takes device memory, as with a driver that loads lazily. Throws
// if no memory is left, or if the stream is captured and the kernel is not loaded.
void load(CUstream_st *stream, const void *kernel);
// Sets the size of the device's memory. Loaded kernels stay loaded.
inline constexpr std::uint64_t kDeviceMemory = std::uint64_t{8} << 30;
void limit_memory(std::uint64_t bytes);
void unload_kernels();  // the next launch of each kernel loads it again

// Makes pin() refuse a call for more than `each` bytes, and any call after which more than `all` bytes would be pinned.
void limit_pinning(std::uint64_t each, std::uint64_t all);
inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

// Makes every capture of a stream fail when it ends.
void refuse_captures(bool refuse);

// Sets how many bytes of dynamic shared memory a block can have. The constants are the limit of a server's GPU, which
// is the default, and that of a desktop's GPU.
inline constexpr std::size_t kMostShared = 227 << 10, kDesktopShared = 99 << 10;
void limit_shared(std::size_t bytes);

}  // namespace protrain::emulation

extern protrain::emulation::Coordinate threadIdx, blockIdx, blockDim, gridDim;

inline void __syncthreads() { protrain::emulation::meet_block(); }
inline void __syncwarp() { protrain::emulation::meet_warp(); }
inline void __threadfence_system() {}  // one thread runs everything

template <typename T>
T atomicCAS(T *at, T expected, T desired) {
  const T old = *at;
  if (old == expected) *at = desired;
  return old;
}
