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
  // Opens memory of `bytes` bytes that another process has created. `place` is the place() of that process's object.
  // Code::io if this process cannot reach the memory, for example from another container or as another user.
  static SharedMemory open(const std::string &place, std::uint64_t bytes);

  SharedMemory(SharedMemory &&other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~SharedMemory();

  // Returns the path at which other processes of this machine can open the memory while this object lives.
  std::string place() const;
  // Maps `bytes` bytes of this memory, from `offset` on, at the address `memory`. The mapping replaces the pages at
  // that address, and their contents are lost. The replaced pages must come from mmap (base/memory.h). The mapping
  // outlives this object. All arguments are multiples of a page. Throws Code::nomem if the system refuses.
  void map_over(std::byte *memory, std::uint64_t bytes, std::uint64_t offset) const;

 private:
  explicit SharedMemory(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

}  // namespace protrain
