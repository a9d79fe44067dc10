// Large memory: regions taken from the system at their exact size, and how much there is to take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace protrain {

// A zeroed region of exactly `bytes` bytes (rounded up to pages by the system), page aligned, owned.
class Block {
 public:
  Block() = default;
  // `subject` says what for ("device arena"); Code::nomem with the numbers when the system refuses.
  Block(std::uint64_t bytes, const std::string &subject);
  Block(Block &&other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Block &operator=(Block &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Block();

  std::byte *data() const { return data_; }
  std::uint64_t size() const { return bytes_; }

 private:
  std::byte *data_ = nullptr;
  std::uint64_t bytes_ = 0;
};

// Has the system put pages behind memory now rather than where each is first touched; what it holds stays. Several
// threads with a part each are done sooner.
void populate(std::byte *memory, std::uint64_t bytes);

// Code::nomem where the system or the heap would refuse so much now. Nothing is kept: what is asked for next by this
// thread is there, unless another takes it first. For libraries that use what they were not given.
void require_mappable(std::uint64_t bytes, const std::string &subject);
void require_heap(std::size_t bytes, const std::string &subject);

// Bytes this process may still take: the least of what the machine has available, what the control groups leave, and
// what RLIMIT_AS and RLIMIT_DATA leave. `root` is where /proc and /sys are found: "" but in tests.
std::uint64_t available_memory(const std::string &root = "");

}  // namespace protrain
