// Spill file: room on disk for what does not fit in memory while a process lives. It has no name, so that nothing is
// left behind however the process ends, and its whole size is taken when it is made. What is read is compared with the
// checksum of what was written.
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
  // `bytes` in a file in `directory`: io_uring and O_DIRECT where system and file system have them. Code::nospc where
  // they are not free, Code::io, Code::path where it is no directory.
  SpillFile(const std::string &directory, std::uint64_t bytes);
  SpillFile(const SpillFile &) = delete;
  SpillFile &operator=(const SpillFile &) = delete;
  ~SpillFile();

  // A region is what is written and read as one: it starts at a multiple of kDiskAlignment. All regions are declared
  // before the first transfer, several times where that is simpler; those that are in use at one time do not overlap.
  void declare(std::uint64_t offset, std::uint64_t bytes);

  // One region, whole; one transfer at a time. Nothing is allocated. Memory at a multiple of kDiskAlignment goes
  // straight to the disk. Code::io, Code::nospc; reading: Code::corrupt where the region was not written, or has
  // changed since.
  void write(std::uint64_t offset, std::span<const std::byte> from);
  void read(std::uint64_t offset, std::span<std::byte> to);

  bool direct() const { return direct_; }           // past the system's cache
  bool queued() const { return ring_ != nullptr; }  // by io_uring

 private:
  struct Region {
    std::uint64_t offset = 0, bytes = 0;
    std::uint64_t checksum = 0;
    bool written = false;
  };
  struct Ring;

  void open(const std::string &directory, std::uint64_t bytes);
  Region &region(std::uint64_t offset, std::uint64_t bytes);
  // Both ways, from here on: `memory` is read where `writes`. Offsets and sizes are multiples of kDiskAlignment.
  void transfer(std::uint64_t offset, std::byte *memory, std::uint64_t bytes, bool writes);
  void transfer_queued(std::uint64_t offset, std::byte *memory, std::uint64_t bytes, bool writes);
  void transfer_plain(std::uint64_t offset, std::byte *memory, std::uint64_t bytes, bool writes);

  std::string directory_;
  int descriptor_ = -1;
  bool direct_ = false;
  std::unique_ptr<Ring> ring_;
  Block bounce_;                 // for memory that does not suit the disk
  std::vector<Region> regions_;  // sorted by offset, then bytes
};

}  // namespace protrain
