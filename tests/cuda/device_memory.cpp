#include "cuda/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"

namespace protrain::emulation {

namespace {

constexpr std::uint64_t kHugePage = 2 << 20;

std::mutex memory_mutex;
std::map<void *, std::uint64_t> regions;  // bytes
int at_work = 0;

void allow(void *memory, std::uint64_t bytes) {
  const int access = at_work > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
  require(mprotect(memory, bytes, access) == 0, Code::internal, "device memory", "the system refused its protection");
}

}  // namespace

void change_work(int by) {
  const std::lock_guard lock(memory_mutex);
  const bool before = at_work > 0;
  at_work += by;
  if (before == (at_work > 0)) return;
  for (const auto &[memory, bytes] : regions) allow(memory, bytes);
}

bool holds(const void *begin, std::uint64_t bytes) {
  const std::lock_guard lock(memory_mutex);
  const auto *first = static_cast<const std::byte *>(begin);
  return std::ranges::any_of(regions, [&](const auto &region) {
    const auto *start = static_cast<const std::byte *>(region.first);
    return first >= start && first + bytes <= start + region.second;
  });
}

void *take_device_memory(std::uint64_t bytes) {
  bytes = std::max<std::uint64_t>(bytes, 1);
  void *memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(memory != MAP_FAILED, Code::nomem, "device memory", "{} bytes were refused", bytes);
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // makes mprotect of large regions quick
  const std::lock_guard lock(memory_mutex);
  regions[memory] = bytes;
  allow(memory, bytes);
  return memory;
}

void give_device_memory(void *memory) {
  const std::lock_guard lock(memory_mutex);
  const auto region = regions.find(memory);
  if (region == regions.end()) return;
  munmap(region->first, region->second);
  regions.erase(region);
}

std::uint64_t taken_device_memory() {
  const std::lock_guard lock(memory_mutex);
  std::uint64_t bytes = 0;
  for (const auto &[memory, size] : regions) bytes += size;
  return bytes;
}

DeviceAtWork::DeviceAtWork() { change_work(1); }
DeviceAtWork::~DeviceAtWork() { change_work(-1); }

}  // namespace protrain::emulation

// Lets the stand-in for NCCL, which is a library of its own, access device memory. `begins` is 1 when an access begins,
// and 0 when it ends.
extern "C" __attribute__((visibility("default"))) void protrain_emulated_access(int begins) {
  protrain::emulation::change_work(begins != 0 ? 1 : -1);
}

// Tells the stand-in for NCCL whether the bytes lie in one allocation of device memory.
extern "C" __attribute__((visibility("default"))) int protrain_emulated_holds(const void *begin, std::uint64_t bytes) {
  return protrain::emulation::holds(begin, bytes) ? 1 : 0;
}
