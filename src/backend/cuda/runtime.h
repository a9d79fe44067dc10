// What is asked of CUDA's runtime: memory, streams, events. runtime.cu does it; tests have a twin without a GPU.
// Everything that fails throws Code::device (memory: Code::nomem) with CUDA's own words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace protrain::backend::cuda {

using Stream = CUstream_st *;
using Event = CUevent_st *;
using Captured = CUgraphExec_st *;

// The device of that number for the calling thread; returns "NVIDIA H200, compute capability 9.0, driver 13.0".
// Code::device where there is none, or no driver; Code::unsupported where it is older than the kernels.
std::string open_device(int index);
std::uint64_t free_memory();  // of the device, bytes
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

// From here on what this thread appends to the stream, and to any other from when that waits for an event of it, is
// kept and not done. An event that is recorded meanwhile orders what is kept and means nothing to anybody else. At the
// end the others must have been waited for.
void begin_capture(Stream stream);
Captured end_capture(Stream stream);               // ready to be launched
void abandon_capture(Stream stream);               // after an error, wherever it came
void record_captured(Event event, Stream stream);  // kept: the event is recorded in each launch, and can be asked then
void launch(Captured captured, Stream stream);
void destroy(Captured captured);

void copy(Stream stream, void *to, const void *from, std::uint64_t bytes);  // either end anywhere
void copy_now(void *to, const void *from, std::uint64_t bytes);
void clear(Stream stream, void *memory, std::uint64_t bytes);  // to zeros

void check_launch();
std::size_t most_shared();                                 // dynamic shared memory that a block can have, bytes
void allow_shared(const void *kernel, std::size_t bytes);  // up to that

}  // namespace protrain::backend::cuda
