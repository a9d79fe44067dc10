// Large blocks of memory, taken directly from the system, and how much memory is available.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace protrain {

// Owns a zeroed, page-aligned block of `bytes` bytes, taken from the system in whole pages.
class MemoryBlock {
 public:
  MemoryBlock() = default;
  // `subject` names the purpose ("device arena"). Code::nomem with the figures if the system refuses.
  MemoryBlock(std::uint64_t bytes, const std::string &subject);
  MemoryBlock(MemoryBlock &&other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  MemoryBlock &operator=(MemoryBlock &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MemoryBlock();

  std::byte *data() const { return data_; }
  std::uint64_t size() const { return bytes_; }

 private:
  std::byte *data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// Makes the system back this memory with pages now instead of at the first touch; the contents stay. Several threads,
// each with a part of the memory, finish sooner than one.
void populate(std::byte *memory, std::uint64_t bytes);

// These functions check that `bytes` bytes can be allocated: require_mappable() with mmap, and require_heap() with
// malloc. Both free the bytes at once, and throw Code::nomem if the system refuses them. Call one of them before a call
// into a library that does not check its own allocations. That library then gets the memory, unless another thread
// takes it first.
void require_mappable(std::uint64_t bytes, const std::string &subject);
void require_heap(std::size_t bytes, const std::string &subject);

// Returns how many bytes this process may still take: the least of the machine's available memory, what the control
// groups leave, and what RLIMIT_AS and RLIMIT_DATA leave. `root` is the directory above /proc and /sys: "" except in
// tests.
std::uint64_t available_memory(const std::string &root = "");

}  // namespace protrain
