// Default implementations of the Device methods that not every device needs.
#include "backend/backend.h"
#include "base/error.h"

namespace protrain::backend {

namespace {
[[noreturn]] void not_asynchronous(const Device &device) {
  fail(Code::internal, device.info().name, "events and recordings belong to asynchronous devices");
}
}  // namespace

std::uint64_t Device::free_bytes() const { return 0; }
std::uint64_t Device::cache_bytes() const { return 0; }
std::uint64_t Device::pin(void *, std::uint64_t bytes) { return bytes; }
void Device::unpin(void *) {}
void Device::reserve_events(std::size_t) { not_asynchronous(*this); }
void Device::record(Queue, std::size_t) { not_asynchronous(*this); }
void Device::wait(Queue, std::size_t) { not_asynchronous(*this); }
void Device::wait_here(std::size_t) { not_asynchronous(*this); }
std::int64_t Device::event_ns(std::size_t) { not_asynchronous(*this); }
std::unique_ptr<Recording> Device::record_step(void (*)(void *), void *, bool) { return nullptr; }
void Device::replay_step(Recording &, const StepScalars &) { not_asynchronous(*this); }

}  // namespace protrain::backend
