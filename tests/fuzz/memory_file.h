// A file in memory, with a path by which it can be opened.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "fuzz/answer.h"

namespace protrain::fuzz {

class MemoryFile {
 public:
  MemoryFile(const std::uint8_t *data, std::size_t size)
      : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)), path_("/proc/self/fd/" + std::to_string(descriptor_)) {
    expect(descriptor_ >= 0 && write(descriptor_, data, size) == static_cast<ssize_t>(size), "no memory file");
  }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;
  ~MemoryFile() { close(descriptor_); }

  const std::string &path() const { return path_; }

 private:
  int descriptor_;
  std::string path_;
};

}  // namespace protrain::fuzz
