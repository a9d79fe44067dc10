// The emulated device's memory: pages that only work of the device may access. Host code that accesses them faults, as
// with a GPU's memory.
#pragma once

#include <cstdint>

namespace protrain::emulation {

void *take_device_memory(std::uint64_t bytes);  // zeroed, page aligned
void give_device_memory(void *memory);
std::uint64_t taken_device_memory();  // bytes

// While an object of this class exists, the device is at work: any thread can read and write all device memory.
class DeviceAtWork {
 public:
  DeviceAtWork();
  ~DeviceAtWork();
  DeviceAtWork(const DeviceAtWork &) = delete;
  DeviceAtWork &operator=(const DeviceAtWork &) = delete;
};

}  // namespace protrain::emulation
