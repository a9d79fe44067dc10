// The emulated device's memory: pages that host code cannot access, like a GPU's memory. They are accessible only while
// the device works.
#pragma once

#include <cstddef>
#include <cstdint>

namespace protrain::emulation {

void *take_device_memory(std::uint64_t bytes);  // zeroed, page aligned
void give_device_memory(void *memory);
std::uint64_t taken_device_memory();  // bytes

// True if the bytes lie in one region.
bool holds(const void *begin, std::uint64_t bytes);

void change_work(int by);  // 1: the device begins some work, -1: it has ended

// While an object of this class exists, the device works: any thread can read and write all device memory.
class DeviceAtWork {
 public:
  DeviceAtWork();
  ~DeviceAtWork();
  DeviceAtWork(const DeviceAtWork &) = delete;
  DeviceAtWork &operator=(const DeviceAtWork &) = delete;
};

}  // namespace protrain::emulation
