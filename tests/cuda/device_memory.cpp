#include "cuda/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"

namespace protrain::emulation {

namespace {

std::mutex mutex;
std::map<void *, std::uint64_t> regions;  // bytes
int at_work = 0;

void allow(void *memory, std::uint64_t bytes) {
  const int access = at_work > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
  require(mprotect(memory, bytes, access) == 0, Code::internal, "device memory", "the system refused its protection");
}

void change_work(int by) {
  const std::lock_guard lock(mutex);
  const bool before = at_work > 0;
  at_work += by;
  if (before == (at_work > 0)) return;
  for (const auto &[memory, bytes] : regions) allow(memory, bytes);
}

}  // namespace

void *take_device_memory(std::uint64_t bytes) {
  bytes = std::max<std::uint64_t>(bytes, 1);
  void *memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(memory != MAP_FAILED, Code::nomem, "device memory", "{} bytes were refused", bytes);
  const std::lock_guard lock(mutex);
  regions[memory] = bytes;
  allow(memory, bytes);
  return memory;
}

void give_device_memory(void *memory) {
  const std::lock_guard lock(mutex);
  const auto region = regions.find(memory);
  if (region == regions.end()) return;
  munmap(region->first, region->second);
  regions.erase(region);
}

std::uint64_t taken_device_memory() {
  const std::lock_guard lock(mutex);
  std::uint64_t bytes = 0;
  for (const auto &[memory, size] : regions) bytes += size;
  return bytes;
}

DeviceAtWork::DeviceAtWork() { change_work(1); }
DeviceAtWork::~DeviceAtWork() { change_work(-1); }

}  // namespace protrain::emulation
