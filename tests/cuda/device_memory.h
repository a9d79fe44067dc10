// The emulated device's memory: pages that nobody but its own work may touch. A host that follows a device's address
// faults, as it does where the memory is a GPU's.
#pragma once

#include <cstdint>

namespace protrain::emulation {

void *take_device_memory(std::uint64_t bytes);  // zeroed, page aligned
void give_device_memory(void *memory);
std::uint64_t taken_device_memory();  // bytes

// Work of the device: while one lives, all device memory can be read and written, by any thread.
class DeviceAtWork {
 public:
  DeviceAtWork();
  ~DeviceAtWork();
  DeviceAtWork(const DeviceAtWork &) = delete;
  DeviceAtWork &operator=(const DeviceAtWork &) = delete;
};

}  // namespace protrain::emulation
