// Spill file: disk space for data that does not fit in memory. The file has no name, so nothing is left behind however
// the process ends. Its whole size is allocated when it is created. Each read is checked against the checksum of the
// last write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/tier.h"

namespace protrain {

class SpillFile {
 public:
  // Allocates `bytes` in a file in `directory`. Uses io_uring and O_DIRECT where the system and the file system have
  // them. Code::nospc if there is too little space, Code::path if `directory` is no directory, else Code::io.
  SpillFile(const std::string &directory, std::uint64_t bytes);
  SpillFile(const SpillFile &) = delete;
  SpillFile &operator=(const SpillFile &) = delete;
  ~SpillFile();

  // Declares a region. A region is written and read as a whole, and starts at a multiple of kDiskAlignment. Regions in
  // use at the same time do not overlap. The first write of an undeclared region declares it, and so allocates a few
  // bytes; no other read or write allocates.
  void declare(std::uint64_t offset, std::uint64_t bytes);

  // Both move one whole region. Only one of them may run at a time. Data whose address is a multiple of kDiskAlignment
  // needs no copy on the way to the disk or back. Code::io, Code::nospc. read(): Code::corrupt if the region was not
  // written or has changed since.
  void write(std::uint64_t offset, std::span<const std::byte> from);
  void read(std::uint64_t offset, std::span<std::byte> to);

  bool direct() const { return direct_; }           // bypasses the system's cache
  bool queued() const { return ring_ != nullptr; }  // uses io_uring

 private:
  struct Region {
    std::uint64_t offset = 0, bytes = 0;
    std::uint64_t checksum = 0;
    bool written = false;
  };
  struct Ring;

  void open(const std::string &directory, std::uint64_t bytes);
  Region *find(std::uint64_t offset, std::uint64_t bytes);  // nullptr if not declared
  // All three copy `bytes` bytes: from `memory` to the file if `writes`, else from the file to `memory`. Offsets and
  // sizes are multiples of kDiskAlignment.
  void transfer(std::uint64_t offset, std::byte *memory, std::uint64_t bytes, bool writes);
  void transfer_queued(std::uint64_t offset, std::byte *memory, std::uint64_t bytes, bool writes);
  void transfer_plain(std::uint64_t offset, std::byte *memory, std::uint64_t bytes, bool writes);

  std::string directory_;
  int descriptor_ = -1;
  bool direct_ = false;
  std::unique_ptr<Ring> ring_;
  MemoryBlock bounce_;           // for memory that is not aligned for the disk
  std::vector<Region> regions_;  // sorted by offset, then bytes
};

}  // namespace protrain
