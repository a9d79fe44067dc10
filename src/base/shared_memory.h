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

  // Zeroed memory of whole pages. Code::nomem if the system refuses.
  static SharedMemory create(std::uint64_t bytes);
  // Opens another process's memory of so many bytes at its place(). Code::io if it cannot be reached, as from another
  // container or by another user.
  static SharedMemory open(const std::string &place, std::uint64_t bytes);

  SharedMemory(SharedMemory &&other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~SharedMemory();

  // Where other processes of this machine open it, as long as this object lives.
  std::string place() const;
  // Puts the pages from `offset` on in the place of `memory`, which was mapped by itself (base/memory.h). What was
  // there is lost. The mapping outlives this object. All arguments are multiples of a page. Code::nomem.
  void map_over(std::byte *memory, std::uint64_t bytes, std::uint64_t offset) const;

 private:
  explicit SharedMemory(int descriptor) : descriptor_(descriptor) {}

  int descriptor_;
};

}  // namespace protrain
