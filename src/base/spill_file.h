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
  // them. Throws Code::nospc if there is too little space, Code::path if `directory` is no directory, Code::nomem if
  // memory is short, and Code::io for other failures.
  SpillFile(const std::string &directory, std::uint64_t bytes);
  SpillFile(const SpillFile &) = delete;
  SpillFile &operator=(const SpillFile &) = delete;
  ~SpillFile();

  // Declares a region. A region is written and read as a whole, and starts at a multiple of kDiskAlignment. Regions in
  // use at the same time do not overlap. The first write of an undeclared region declares it, and so allocates a few
  // bytes; no other read or write allocates.
  void declare(std::uint64_t offset, std::uint64_t bytes);

  // write() and read() move one whole region. One thread may write a declared region while another reads a different
  // one. No two threads may read at once, no two may write at once, and nothing may run beside declare(). Data whose
  // address is a multiple of kDiskAlignment needs no copy on the way to the disk or back. write() and read() throw
  // Code::io or Code::nospc. read() throws Code::corrupt if the region was never written, or has changed since it was
  // written.
  void write(std::uint64_t offset, std::span<const std::byte> from);
  void read(std::uint64_t offset, std::span<std::byte> to);

  bool direct() const { return direct_; }  // bypasses the system's cache
  bool queued() const;                     // both directions use io_uring

 private:
  struct Region {
    std::uint64_t offset = 0, bytes = 0;
    std::uint64_t checksum = 0;  // of all bytes, computed part by part
    bool written = false;
  };
  struct Ring;
  // The io_uring and the buffer of one direction, either reads or writes. Each direction has its own, because reads and
  // writes run at the same time.
  struct Direction {
    explicit Direction(bool to_file);
    ~Direction();
    const bool writes;  // to the file, else from it
    std::unique_ptr<Ring> ring;
    MemoryBlock bounce;  // for memory that is not aligned for the disk
  };

  void open(const std::string &directory, std::uint64_t bytes);
  Region *find(std::uint64_t offset, std::uint64_t bytes);  // nullptr if not declared
  // The three transfer functions copy between `memory` and the file. Offsets and sizes are multiples of kDiskAlignment.
  // A returned number is the checksum of the bytes that were copied.
  std::uint64_t transfer(const Direction &way, std::uint64_t offset, std::span<std::byte> memory);
  std::uint64_t transfer_queued(const Direction &way, std::uint64_t offset, std::span<std::byte> memory);
  void transfer_plain(const Direction &way, std::uint64_t offset, std::span<std::byte> memory);

  std::string directory_;
  int descriptor_ = -1;
  bool direct_ = false;
  Direction reading_{false}, writing_{true};
  std::vector<Region> regions_;  // sorted by offset, then bytes
};

}  // namespace protrain
