// The twin of src/backend/cuda/runtime.cu for machines without a GPU. What is appended to a stream is done only when
// somebody waits for it, and then streams take turns at random: whoever forgets to wait reads what is not there yet.
#include "backend/cuda/runtime.h"

#include <chrono>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

#include "base/error.h"
#include "cuda/emulation.h"

// An event is over up to the number of its records that were passed.
struct CUevent_st {
  std::uint64_t recorded = 0, passed = 0;
  std::chrono::steady_clock::time_point at;  // of the last pass
};

struct CUstream_st {
  struct Item {
    std::function<void()> work;  // or:
    CUevent_st *event = nullptr;
    std::uint64_t record = 0;
    bool waits = false;  // else passes
  };
  std::deque<Item> items;
};

namespace protrain::backend::cuda {

namespace {
std::recursive_mutex mutex;
std::set<Stream> streams;
std::uint64_t turns = 1;

// The first item of the stream, where nothing holds it up.
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
  const std::lock_guard lock(mutex);
  const std::vector<Stream> all(streams.begin(), streams.end());
  while (!done()) {
    turns = turns * 6364136223846793005u + 1442695040888963407u;
    bool any = false;
    for (std::size_t i = 0; i < all.size() && !any; ++i) any = step(all[((turns >> 33) + i) % all.size()]);
    require(any, Code::internal, "streams", "wait for each other for ever");
  }
}
}  // namespace

Facts open_device(int index) {
  require(index == 0, Code::device, "device", "there is no device cuda:{}; this machine has 1 of CUDA's", index);
  return {"emulated", std::uint64_t{8} << 30};
}
void use_device(int) {}

void *allocate(std::uint64_t bytes) { return ::operator new (bytes, std::align_val_t{256}); }
void release(void *memory) { ::operator delete (memory, std::align_val_t{256}); }
void *allocate_reachable(std::uint64_t bytes) { return std::memset(allocate(bytes), 0, bytes); }
void release_reachable(void *memory) { release(memory); }
bool pin(void *, std::uint64_t) { return true; }
void unpin(void *) {}

Stream make_stream() {
  const std::lock_guard lock(mutex);
  return *streams.insert(new CUstream_st).first;
}
void destroy(Stream stream) {
  const std::lock_guard lock(mutex);
  streams.erase(stream);
  delete stream;
}
void finish(Stream stream) {
  run_until([stream] { return stream->items.empty(); });
}
Event make_event() { return new CUevent_st; }
void destroy(Event event) { delete event; }
void record(Event event, Stream stream) {
  const std::lock_guard lock(mutex);
  stream->items.push_back({.event = event, .record = ++event->recorded});
}
void wait(Stream stream, Event event) {
  const std::lock_guard lock(mutex);
  stream->items.push_back({.event = event, .record = event->recorded, .waits = true});
}
void finish(Event event) {
  run_until([event, record = event->recorded] { return event->passed >= record; });
}
std::int64_t ns_between(Event begin, Event end) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(end->at - begin->at).count();
}

void copy(Stream stream, void *to, const void *from, std::uint64_t bytes) {
  if (bytes > 0) emulation::append(stream, [=] { std::memcpy(to, from, bytes); });
}
void copy_now(void *to, const void *from, std::uint64_t bytes) {
  const std::lock_guard lock(mutex);
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void clear(Stream stream, void *memory, std::uint64_t bytes) {
  if (bytes > 0) emulation::append(stream, [=] { std::memset(memory, 0, bytes); });
}
void check_launch() {}
void allow_shared(const void *, std::size_t) {}

}  // namespace protrain::backend::cuda

void protrain::emulation::append(CUstream_st *stream, std::function<void()> work) {
  const std::lock_guard lock(backend::cuda::mutex);
  stream->items.push_back({.work = std::move(work)});
}
