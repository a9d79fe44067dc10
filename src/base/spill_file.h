#pragma once
#include <unistd.h>
#include <cstdlib>
#include <span>
#include <string>
#include "base/error.h"
namespace protrain {
class SpillFile {
 public:
  SpillFile(const std::string &d, std::uint64_t bytes) {
    std::string t = d + "/spillXXXXXX";
    fd_ = mkstemp(t.data());
    require(fd_ >= 0, Code::io, d, "no");
    unlink(t.c_str());
    if (ftruncate(fd_, (long)bytes)) {
    }
  }
  ~SpillFile() { close(fd_); }
  void write(std::uint64_t o, std::span<const std::byte> b) {
    require(pwrite(fd_, b.data(), b.size(), (long)o) == (ssize_t)b.size(), Code::io, "spill", "w");
  }
  void read(std::uint64_t o, std::span<std::byte> b) {
    require(pread(fd_, b.data(), b.size(), (long)o) == (ssize_t)b.size(), Code::io, "spill", "r");
  }

 private:
  int fd_;
};
}  // namespace protrain
