// The backend's interface to CUDA's runtime: memory, streams, events. runtime.cu implements it. Tests have another
// implementation, which needs no GPU.
//   A failure throws Code::device, or Code::nomem if memory is refused, with CUDA's own words. pin() returns false
// instead. Functions that release or destroy something ignore failures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;
struct CUctx_st;

namespace protrain::backend::cuda {

using Stream = CUstream_st *;
using Event = CUevent_st *;
using CapturedGraph = CUgraphExec_st *;
using Context = CUctx_st *;

// Returns the number of devices that this process sees. Throws Code::device if there is no driver.
int device_count();
// Returns the device's name on the PCI bus of its machine, such as "0000:17:00.0".
std::string pci_bus_id(int index);
// Makes device number `index` the calling thread's current device. Returns a description: "NVIDIA H200, compute
// capability 9.0, driver 13.0". Throws Code::device if there is no such device, or no driver. Throws Code::unsupported
// if the device is too old for the kernels.
std::string open_device(int index);
std::uint64_t free_memory();  // of the current device, bytes
void use_device(int index);

// A thread's current context says on which device its calls work. use_device() makes the device's own context current.
Context current_context();           // of the calling thread; nullptr: it has none
void make_current(Context context);  // ignores a failure

// Gives the calling thread back the context that it had. The thread may belong to a caller of the library who uses CUDA
// too, on another device or in a context of its own.
class CallersContext {
 public:
  CallersContext() : context_(current_context()) {}
  ~CallersContext() { make_current(context_); }
  CallersContext(const CallersContext &) = delete;
  CallersContext &operator=(const CallersContext &) = delete;

 private:
  const Context context_;
};

void *allocate(std::uint64_t bytes);  // zeroed memory of the device
void release(void *memory);
void *allocate_reachable(std::uint64_t bytes);  // zeroed memory of the host that the device can read and write
void release_reachable(void *memory);
bool pin(void *host, std::uint64_t bytes);
void unpin(void *host);

Stream make_stream();
void destroy(Stream stream);
void finish(Stream stream);  // waits until all work is done; errors of appended work come out here
Event make_event();
void destroy(Event event);
void record(Event event, Stream stream);
void wait(Stream stream, Event event);
void finish(Event event);
std::int64_t ns_between(Event begin, Event end);  // both events have completed

// From begin_capture() to end_capture(), work that this thread appends to the stream is captured, not run. Another
// stream joins the capture when it waits for an event of this stream. An event that record() records during the capture
// only orders the captured work. Before end_capture() this stream must have waited for all streams that joined.
void begin_capture(Stream stream);
CapturedGraph end_capture(Stream stream);          // ready to be launched
void abandon_capture(Stream stream);               // ends a capture after an error
void record_captured(Event event, Stream stream);  // each launch of the captured graph records the event
void launch(CapturedGraph captured, Stream stream);
void destroy(CapturedGraph captured);

void copy(Stream stream, void *to, const void *from, std::uint64_t bytes);  // both may be device or host memory
void copy_now(void *to, const void *from, std::uint64_t bytes);
void clear(Stream stream, void *memory, std::uint64_t bytes);  // sets it to zeros

void check_launch();
std::size_t most_shared();                                 // dynamic shared memory that a block can have, bytes
void allow_shared(const void *kernel, std::size_t bytes);  // `bytes` is at most most_shared()

}  // namespace protrain::backend::cuda
