// What is asked of CUDA's runtime: memory, streams, events. runtime.cu does it; tests have a twin without a GPU.
// Everything that fails throws Code::device (memory: Code::nomem) with CUDA's own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

struct CUstream_st;
struct CUevent_st;

namespace protrain::backend::cuda {

using Stream = CUstream_st *;
using Event = CUevent_st *;

struct Facts {
  std::string description;     // "NVIDIA H200, compute capability 9.0, driver 13.0"
  std::uint64_t memory_bytes;  // that are free
};

// The device of that number for the calling thread. Code::device where there is none, or no driver.
Facts open_device(int index);
void use_device(int index);

void *allocate(std::uint64_t bytes);  // zeroed memory of the device
void release(void *memory);
void *allocate_reachable(std::uint64_t bytes);  // zeroed memory of the host that the device reads and writes
void release_reachable(void *memory);
bool pin(void *host, std::uint64_t bytes);
void unpin(void *host);

Stream make_stream();
void destroy(Stream stream);
void finish(Stream stream);  // until all is done; errors of what was appended come out here
Event make_event();
void destroy(Event event);
void record(Event event, Stream stream);
void wait(Stream stream, Event event);
void finish(Event event);
std::int64_t ns_between(Event begin, Event end);  // both over

void copy(Stream stream, void *to, const void *from, std::uint64_t bytes);  // either end anywhere
void copy_now(void *to, const void *from, std::uint64_t bytes);
void clear(Stream stream, void *memory, std::uint64_t bytes);  // to zeros

void check_launch();
void allow_shared(const void *kernel, std::size_t bytes);  // of dynamic shared memory

}  // namespace protrain::backend::cuda
