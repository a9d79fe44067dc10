// SharedMemory: memory that several processes of a machine have in common. It has no name in any file system and is
// gone with the last process that maps it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace protrain {

class SharedMemory {
 public:
  static constexpr std::uint64_t kPage = 4096;

  // Creates zeroed memory of `bytes` bytes. Code::nomem if the system refuses.
  static SharedMemory create(std::uint64_t bytes);
  // Opens the memory of another process, which has `bytes` bytes. `place` is the other object's place(). Code::io if it
  // cannot be reached, for example from another container or by another user.
  static SharedMemory open(const std::string &place, std::uint64_t bytes);

  SharedMemory(SharedMemory &&other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~SharedMemory();

  // Returns the path at which other processes of this machine can open the memory while this object lives.
  std::string place() const;
  // Maps `bytes` bytes of this memory, from `offset` on, at the address `memory`. They take the place of the pages that
  // are there, whose contents are lost. Those pages must come from mmap (base/memory.h). The mapping outlives this
  // object. All arguments are multiples of a page. Throws Code::nomem if the system refuses.
  void map_over(std::byte *memory, std::uint64_t bytes, std::uint64_t offset) const;

 private:
  explicit SharedMemory(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

}  // namespace protrain
