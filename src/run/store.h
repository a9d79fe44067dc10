// Store: the memory of the three tiers, which is the device's arena, a slab of the host's memory and a file on disk. A
// Program gives every buffer a tier and an offset; the store turns these into addresses.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>

#include "backend/backend.h"
#include "base/memory.h"
#include "base/spill_file.h"
#include "program/program.h"

namespace protrain::run {

class Store {
 public:
  using Bytes = PerTier<std::uint64_t>;

  struct Room {
    Bytes bytes{};        // of each tier, allocated at once
    Bytes state_bytes{};  // the part of `bytes` that outlives a step
    // Frozen weights that sessions share. They take the place of the arena's first bytes, and outlive the store.
    std::span<std::byte> frozen = {};
    // An array on disk is a row of pieces of this size, a multiple of kDiskAlignment. The last piece can be shorter.
    // Each piece has a checksum and is read and written whole.
    std::uint64_t piece_bytes = 16 << 20;
    std::string directory = {};  // directory of the spill file, which has no name; "": no file
  };
  Store(backend::Device &device, Room room);
  ~Store();
  Store(const Store &) = delete;
  Store &operator=(const Store &) = delete;

  // Bytes of the host's slab that the system has pinned, and bytes that it refused to pin. Copies to and from unpinned
  // bytes are slower.
  std::uint64_t pinned_bytes() const { return pinned_bytes_; }
  std::uint64_t unpinned_bytes() const { return host_.size() - pinned_bytes_; }

  // Returns the address of the byte at `offset` of a buffer on the device or on the host.
  std::byte *address(const program::Buffer &buffer, std::uint64_t offset = 0) const;
  std::byte *at(Tier tier, std::uint64_t offset) const;  // the byte at `offset` of a tier's memory; not for the disk

  // Registers an array on disk, or whole pieces of one, with the spill file. This allocates the entries that hold the
  // checksums of pieces, which the first write would allocate otherwise.
  void declare_disk(std::uint64_t offset, std::uint64_t bytes);
  // read_disk() and write_disk() copy between a declared place on disk and memory, on the calling thread. One thread
  // may read while another writes another place. No two may read at once, and no two may write at once.
  void read_disk(std::uint64_t offset, std::byte *to, std::uint64_t bytes);
  void write_disk(std::uint64_t offset, const std::byte *from, std::uint64_t bytes);
  void clear_disk(std::uint64_t offset, std::uint64_t bytes);  // fills with zeros; outside of steps

  // Returns memory for data on its way between disk and caller, outside of steps. The content lasts until the next
  // call. The memory is the part of host or device memory that holds temporary buffers during a step. More memory is
  // allocated only if this part is too small.
  std::byte *staging(std::uint64_t bytes);
  // Keeps staging memory off the first `end` bytes of the device's memory, which hold results of a Program that has
  // run. 0: there are none.
  void keep_results(std::uint64_t end) { results_end_ = end; }

  // Copy `bytes` at `offset` of a persistent buffer, in any tier, to the caller's memory or back. Not for use in steps.
  void read(const program::Buffer &buffer, std::uint64_t offset, void *out, std::uint64_t bytes);
  void write(const program::Buffer &buffer, std::uint64_t offset, const void *from, std::uint64_t bytes);

  // Sweep: makes it cheap to read or write everything part by part. While a sweep lives, staging memory holds copies of
  // the two pieces on disk that were used last (such as one of each plane of the weights). So a piece is moved once,
  // however many of its parts are asked for in a row. Nothing else may use staging memory meanwhile.
  class Sweep {
   public:
    explicit Sweep(Store &store) : store_(store), outermost_(!store.sweeping_) {
      if (outermost_) store_.held_ = {};
      store_.sweeping_ = true;
    }
    Sweep(const Sweep &) = delete;
    Sweep &operator=(const Sweep &) = delete;
    ~Sweep() {
      if (outermost_) store_.sweeping_ = false;
    }
    // Writes the pieces that were changed in staging memory back to the disk. Without this call the changes are lost.
    void finish() {
      if (outermost_) store_.write_back_all();
    }

   private:
    Store &store_;
    const bool outermost_;  // an inner sweep is part of the outer one
  };

 private:
  // A piece of a buffer on disk.
  struct Piece {
    const program::Buffer *buffer = nullptr;
    std::uint64_t begin = 0;  // from the buffer's start
    bool operator==(const Piece &) const = default;
  };
  // A piece in staging memory.
  struct Held {
    Piece piece = {};
    bool changed = false;  // since it came from the disk
  };

  static Room with_fitting_pieces(Room room);
  template <typename Do>
  void each_piece(std::uint64_t bytes, Do &&act) const;
  std::uint64_t piece_bytes(const Piece &piece) const;
  std::byte *place(std::size_t which);  // of a held piece
  std::size_t hold(const Piece &piece, bool overwritten);
  void write_back(std::size_t which);
  void write_back_all();

  backend::Device &device_;
  std::byte *device_arena_ = nullptr;
  MemoryBlock host_;
  std::uint64_t pinned_bytes_ = 0;
  std::unique_ptr<SpillFile> disk_;
  const Room room_;
  MemoryBlock staging_;
  std::uint64_t results_end_ = 0;
  bool sweeping_ = false;
  std::array<Held, 2> held_;
  std::size_t latest_ = 0;  // index in held_ of the piece that was asked for last
};

}  // namespace protrain::run
