// Which devices there are.
#include "backend/cpu/device.h"
#include "base/error.h"

namespace protrain::backend {

namespace {
[[noreturn]] void no_events() {
  fail(Code::internal, "device", "it has no events: its queues do not run by themselves");
}
}  // namespace

void Device::reserve_events(std::size_t) { no_events(); }
void Device::record(Queue, std::size_t) { no_events(); }
void Device::wait(Queue, std::size_t) { no_events(); }
void Device::wait_here(std::size_t) { no_events(); }
std::int64_t Device::event_ns(std::size_t) { no_events(); }

std::unique_ptr<Device> open(const std::string &device, int threads) {
  if (device == "cpu") return open_cpu(threads);
  fail(Code::unsupported, "device", "there is no device \"{}\"; this build knows: cpu", device);
}

}  // namespace protrain::backend
