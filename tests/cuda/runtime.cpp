// Replaces src/backend/cuda/runtime.cu on machines without a GPU. Work that is appended to a stream runs only when the
// host waits for it; streams then take turns at random. So code that forgets to wait reads old data.
#include "backend/cuda/runtime.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cuda/device_memory.h"
#include "cuda/emulation.h"

// An event. `recorded` is the number of times that the event was appended to a stream, and `passed` the number of these
// records that the stream has reached.
struct CUevent_st {
  std::uint64_t recorded = 0, passed = 0;
  std::chrono::steady_clock::time_point at;  // the time when the stream reached the last record
};

// The context of a device.
struct CUctx_st {
  int device;
};

struct CUstream_st {
  struct Item {
    std::function<void()> work;  // if empty, the item is a record of `event` or a wait for it
    CUevent_st *event = nullptr;
    std::uint64_t record = 0;
    bool waits = false;  // true: the item waits for record number `record` of the event; false: it is that record
  };
  CUctx_st *context;  // in which it was made
  std::deque<Item> items;
  CUgraphExec_st *capture = nullptr;  // the capture that this stream is part of
};

// A captured graph: the list of the calls that were captured. The graph has streams and events of its own, which the
// calls use in place of the caller's. Each launch of the graph makes all the calls again.
struct CUgraphExec_st {
  struct Part {
    CUstream_st *own;
    std::size_t kept = 0, met = 0;  // calls captured from the stream; calls that `first` has waited for
  };
  struct Link {
    CUevent_st *own;
    CUstream_st *of;   // the caller's stream in which the event was last recorded
    std::size_t kept;  // calls captured from that stream by then
  };
  CUstream_st *first;                   // the stream in which the capture began
  std::map<CUstream_st *, Part> parts;  // by the caller's streams
  std::map<CUevent_st *, Link> links;   // by the caller's events
  std::vector<std::function<void()>> calls;
  CUevent_st begin, end;
};

namespace protrain::backend::cuda {

namespace {
std::recursive_mutex runtime_mutex;
std::set<Stream> streams;
std::uint64_t turns = 1;
CapturedGraph capture = nullptr;  // the one in progress
bool captures_refused = std::getenv("PROTRAIN_EMULATED_NO_CAPTURES") != nullptr;
std::size_t shared_limit = protrain::emulation::kMostShared;

constexpr std::uint64_t kLoadedBytes = 64 << 10;  // device memory that a loaded kernel takes
std::uint64_t most_pinned_at_once = emulation::kUnlimited, most_pinned = emulation::kUnlimited;  // bytes
std::uint64_t device_memory = [] {  // a test of the plugin sets it by the environment
  const char *bytes = std::getenv("PROTRAIN_EMULATED_MEMORY");
  return bytes != nullptr ? std::strtoull(bytes, nullptr, 10) : emulation::kDeviceMemory;
}();
std::set<const void *> loaded;
std::map<const std::byte *, std::uint64_t> pinned;     // sizes in bytes, by first byte
std::map<const std::byte *, std::uint64_t> reachable;  // the same, of allocate_reachable()

std::map<int, CUctx_st> context_of_device;
thread_local Context context_of_thread = nullptr;
// Fails on a thread that has no current context. CUDA would open device 0 on such a thread.
void require_device() { require(context_of_thread != nullptr, Code::internal, "device", "is none of this thread's"); }

// Refuses a copy whose host memory crosses the border of a pinned range, as CUDA does.
void require_one_registration(const void *at, std::uint64_t bytes) {
  const std::lock_guard lock(runtime_mutex);
  const auto *begin = static_cast<const std::byte *>(at), *end = begin + bytes;
  auto next = pinned.upper_bound(begin);
  require(bytes == 0 || next == pinned.end() || next->first >= end, Code::device, "device",
          "a copy could not be issued: it enters memory that is pinned");
  if (next == pinned.begin()) return;
  --next;
  const std::byte *last = next->first + next->second;
  require(begin >= last || end <= last, Code::device, "device",
          "a copy could not be issued: it leaves memory that is pinned");
}

// Refuses to capture a copy of host memory that is not pinned. CUDA captures it, but does not say when it runs.
void require_pinned(const void *at, std::uint64_t bytes) {
  const auto *begin = static_cast<const std::byte *>(at);
  const auto holds = [&](const std::map<const std::byte *, std::uint64_t> &ranges) {
    const auto next = ranges.upper_bound(begin);
    return next != ranges.begin() && begin + bytes <= std::prev(next)->first + std::prev(next)->second;
  };
  require(emulation::holds(at, bytes) || holds(pinned) || holds(reachable), Code::device, "device",
          "a copy could not be captured: its memory is not pinned");
}

// Runs the first item of the stream, unless it waits for an event that has not passed yet. Returns whether
// it ran.
bool step(Stream stream) {
  if (stream->items.empty()) return false;
  CUstream_st::Item &item = stream->items.front();
  if (item.waits && item.event->passed < item.record) return false;
  if (item.work) item.work();
  if (item.event != nullptr && !item.waits) {
    item.event->passed = item.record;
    item.event->at = std::chrono::steady_clock::now();
  }
  stream->items.pop_front();
  return true;
}

template <typename Done>
void run_until(Done done) {
  const std::lock_guard lock(runtime_mutex);
  const emulation::DeviceAtWork at_work;
  const std::vector<Stream> all(streams.begin(), streams.end());
  while (!done()) {
    turns = turns * 6364136223846793005u + 1442695040888963407u;
    bool any = false;
    for (std::size_t i = 0; i < all.size() && !any; ++i) any = step(all[((turns >> 33) + i) % all.size()]);
    require(any, Code::internal, "streams", "wait for each other for ever");
  }
}

void require_no_capture(Stream stream) {
  require(stream->capture == nullptr, Code::device, "stream", "is captured: nobody can wait for it");
}

// If the stream is being captured, stores the call and returns true. Otherwise returns false. Each launch of the
// captured graph will make the call, with the graph's own stream in place of `stream`.
template <typename Call>
bool keep(Stream stream, Call call) {
  if (stream->capture == nullptr) return false;
  CUgraphExec_st::Part &part = stream->capture->parts.at(stream);
  ++part.kept;
  stream->capture->calls.push_back([own = part.own, call] { call(own); });
  return true;
}

void forget_capture() {
  for (Stream stream : streams) stream->capture = nullptr;
  capture = nullptr;
}
}  // namespace

int device_count() {
  const char *count = std::getenv("PROTRAIN_EMULATED_DEVICES");
  return count != nullptr ? std::atoi(count) : 1;
}
std::string pci_bus_id(int index) { return fmt::format("emulated:{}", index); }
std::string open_device(int index) {
  require(index < device_count(), Code::device, "device", "there is no device cuda:{}; this machine has {} of CUDA's",
          index, device_count());
  use_device(index);
  return "emulated";
}
std::uint64_t free_memory() {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  const std::uint64_t taken = emulation::taken_device_memory() + loaded.size() * kLoadedBytes;
  return device_memory - std::min(device_memory, taken);
}
void use_device(int index) {
  const std::lock_guard lock(runtime_mutex);
  context_of_thread = &context_of_device.try_emplace(index, CUctx_st{index}).first->second;
}
Context current_context() { return context_of_thread; }
void make_current(Context context) { context_of_thread = context; }

void *allocate(std::uint64_t bytes) {
  require(bytes <= free_memory(), Code::nomem, "device arena", "{} bytes of the device's memory were refused", bytes);
  return emulation::take_device_memory(bytes);
}
void release(void *memory) {
  require_device();
  emulation::give_device_memory(memory);
}
void *allocate_reachable(std::uint64_t bytes) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  void *memory = std::memset(::operator new (bytes, std::align_val_t{256}), 0, bytes);
  reachable[static_cast<const std::byte *>(memory)] = bytes;
  return memory;
}
void release_reachable(void *memory) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  reachable.erase(static_cast<const std::byte *>(memory));
  ::operator delete (memory, std::align_val_t{256});
}
bool pin(void *host, std::uint64_t bytes) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  std::uint64_t all = bytes;
  for (const auto &[memory, size] : pinned) all += size;
  if (bytes > most_pinned_at_once || all > most_pinned) return false;
  const auto *begin = static_cast<const std::byte *>(host);
  const bool overlaps = std::ranges::any_of(
      pinned, [&](const auto &other) { return other.first < begin + bytes && begin < other.first + other.second; });
  if (overlaps) return false;  // CUDA does not pin memory twice
  pinned[begin] = bytes;
  return true;
}
void unpin(void *host) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  require(pinned.erase(static_cast<const std::byte *>(host)) == 1, Code::internal, "pinning", "of other memory");
}

Stream make_stream() {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  return *streams.insert(new CUstream_st{.context = context_of_thread}).first;
}
void destroy(Stream stream) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  streams.erase(stream);
  delete stream;
}
void finish(Stream stream) {
  require_device();
  require_no_capture(stream);
  run_until([stream] { return stream->items.empty(); });
}
Event make_event() {
  require_device();
  return new CUevent_st;
}
void destroy(Event event) {
  require_device();
  delete event;
}
void record(Event event, Stream stream) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  if (stream->capture != nullptr) {
    auto &links = stream->capture->links;
    const auto link = links.try_emplace(event).first;
    if (link->second.own == nullptr) link->second.own = make_event();
    keep(stream, [own_event = link->second.own](Stream own) { record(own_event, own); });
    link->second.of = stream, link->second.kept = stream->capture->parts.at(stream).kept;
    return;
  }
  stream->items.push_back({.event = event, .record = ++event->recorded});
}
void wait(Stream stream, Event event) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  if (capture != nullptr && capture->links.contains(event)) {
    const CUgraphExec_st::Link &link = capture->links[event];
    if (stream->capture == nullptr) capture->parts[stream] = {make_stream()};
    stream->capture = capture;
    keep(stream, [own_event = link.own](Stream own) { wait(own, own_event); });
    if (stream == capture->first) capture->parts.at(link.of).met = link.kept;
    return;
  }
  require(stream->capture == nullptr, Code::device, "event", "is none of the capture that waits for it");
  stream->items.push_back({.event = event, .record = event->recorded, .waits = true});
}
void finish(Event event) {
  require_device();
  run_until([event, record = event->recorded] { return event->passed >= record; });
}
std::int64_t ns_between(Event begin, Event end) {
  require_device();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(end->at - begin->at).count();
}

void begin_capture(Stream stream) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  require(capture == nullptr && stream->items.empty(), Code::device, "stream", "is at work or captured before");
  capture = new CUgraphExec_st{.first = stream};
  capture->parts[stream] = {make_stream()};
  stream->capture = capture;
}
CapturedGraph end_capture(Stream stream) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  require(stream->capture == capture && stream == capture->first, Code::device, "stream", "did not begin the capture");
  for (const auto &[part_of, part] : capture->parts)
    require(part_of == stream || part.met == part.kept, Code::device, "stream", "was captured and not joined");
  require(!captures_refused, Code::device, "stream", "captures are refused");
  const CapturedGraph captured = capture;
  forget_capture();
  return captured;
}
void abandon_capture(Stream) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  if (capture != nullptr) destroy(capture);
  forget_capture();
}
void record_captured(Event event, Stream stream) {
  const std::lock_guard lock(runtime_mutex);
  require(keep(stream, [event](Stream own) { record(event, own); }), Code::device, "stream", "is not captured");
}
void launch(CapturedGraph captured, Stream stream) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  record(&captured->begin, stream);
  for (const auto &[part_of, part] : captured->parts) wait(part.own, &captured->begin);
  for (const auto &call : captured->calls) call();
  record(&captured->end, captured->parts.at(captured->first).own);
  wait(stream, &captured->end);
}
void destroy(CapturedGraph captured) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  for (const auto &[part_of, part] : captured->parts) destroy(part.own);
  for (const auto &[of, link] : captured->links) destroy(link.own);
  delete captured;
}

void copy(Stream stream, void *to, const void *from, std::uint64_t bytes) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  require_one_registration(to, bytes), require_one_registration(from, bytes);
  if (bytes > 0 && stream->capture != nullptr) require_pinned(to, bytes), require_pinned(from, bytes);
  if (bytes > 0) emulation::append(stream, [=] { std::memcpy(to, from, bytes); });
}
void copy_now(void *to, const void *from, std::uint64_t bytes) {
  require_device();
  const std::lock_guard lock(runtime_mutex);
  require_one_registration(to, bytes), require_one_registration(from, bytes);
  const emulation::DeviceAtWork at_work;
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void clear(Stream stream, void *memory, std::uint64_t bytes) {
  require_device();
  if (bytes > 0) emulation::append(stream, [=] { std::memset(memory, 0, bytes); });
}
void check_launch() {}
std::size_t most_shared() {
  require_device();
  return shared_limit;
}
void allow_shared(const void *, std::size_t bytes) {
  require_device();
  require(bytes <= shared_limit, Code::device, "device", "{} bytes of shared memory were refused", bytes);
}

}  // namespace protrain::backend::cuda

void protrain::emulation::append(CUstream_st *stream, std::function<void()> work) {
  const std::lock_guard lock(backend::cuda::runtime_mutex);
  if (!backend::cuda::keep(stream, [work](CUstream_st *own) { append(own, work); }))
    stream->items.push_back({.work = std::move(work)});
}

void protrain::emulation::load(CUstream_st *stream, const void *kernel) {
  using namespace protrain::backend::cuda;
  const std::lock_guard lock(runtime_mutex);
  require(stream->context == context_of_thread, Code::device, "device",
          "a kernel could not be launched: its stream is another context's");
  if (loaded.contains(kernel)) return;
  require(stream->capture == nullptr, Code::device, "device", "a kernel could not be launched: it is not loaded yet");
  require(free_memory() >= kLoadedBytes, Code::nomem, "device", "a kernel could not be launched: out of memory");
  loaded.insert(kernel);
}

void protrain::emulation::limit_memory(std::uint64_t bytes) { backend::cuda::device_memory = bytes; }
void protrain::emulation::unload_kernels() { backend::cuda::loaded.clear(); }
void protrain::emulation::limit_pinning(std::uint64_t each, std::uint64_t all) {
  backend::cuda::most_pinned_at_once = each;
  backend::cuda::most_pinned = all;
}
void protrain::emulation::refuse_captures(bool yes) { backend::cuda::captures_refused = yes; }
void protrain::emulation::limit_shared(std::size_t bytes) { backend::cuda::shared_limit = bytes; }
