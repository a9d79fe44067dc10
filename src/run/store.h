// Store: the three tiers at work: the device's arena, a slab of the host's memory, a file on disk. Programs say where
// in them each thing lies; the store knows their addresses.
#pragma once

#include <array>
#include <memory>
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
    Bytes bytes{};        // of each tier, taken at once
    Bytes state_bytes{};  // of which hold from step to step
    // On disk every array is a row of pieces of this size, the last of what is left; each has a checksum and is read
    // and written whole. A multiple of kDiskAlignment.
    std::uint64_t piece_bytes = 16 << 20;
    std::string directory = {};  // where the file on disk lies, without a name; "": there is none
  };
  Store(backend::Device &device, Room room);
  ~Store();
  Store(const Store &) = delete;
  Store &operator=(const Store &) = delete;

  // Bytes of the host's slab. The system refused to pin the other bytes: copies to and from them are slower.
  std::uint64_t pinned_bytes() const { return pinned_bytes_; }
  std::uint64_t unpinned_bytes() const { return host_.size() - pinned_bytes_; }

  // Device and host only.
  std::byte *address(const program::Buffer &buffer, std::uint64_t offset = 0) const;
  std::byte *arena(Tier tier) const { return tier == Tier::device ? device_arena_ : host_.data(); }

  // An array on disk, or whole pieces of one, before it is first written: then the write takes no memory.
  void declare_disk(std::uint64_t offset, std::uint64_t bytes);
  // Between such a place on disk and memory; on the thread that calls, one at a time.
  void read_disk(std::uint64_t offset, std::byte *to, std::uint64_t bytes);
  void write_disk(std::uint64_t offset, const std::byte *from, std::uint64_t bytes);
  void clear_disk(std::uint64_t offset, std::uint64_t bytes);  // zeros; outside of steps

  // Outside of steps: memory for what passes between the disk and the caller, whose content lasts until the next call.
  // What a step uses from one end to the other is free then; only where that is too small is more taken.
  std::byte *staging(std::uint64_t bytes);

  // `bytes` from `offset` of a buffer that holds from step to step, whatever its tier, to the caller's memory and back.
  // Outside of steps.
  void read(const program::Buffer &buffer, std::uint64_t offset, void *out, std::uint64_t bytes);
  void write(const program::Buffer &buffer, std::uint64_t offset, const void *from, std::uint64_t bytes);

  // For reading or writing everything, part by part: while a sweep lives, a piece of each of two arrays on disk
  // (weights in two planes are such) stays in staging memory and is moved once, however many of its parts are asked for
  // in a row. Nothing else may use that memory meanwhile.
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
    // What was written is on disk; without it the last pieces are not.
    void finish() {
      if (outermost_) store_.write_back_all();
    }

   private:
    Store &store_;
    const bool outermost_;  // one within another is part of it
  };

 private:
  // A piece of a buffer on disk.
  struct Piece {
    const program::Buffer *buffer = nullptr;
    std::uint64_t begin = 0;  // from the buffer's start
    bool operator==(const Piece &) const = default;
  };
  // One that staging memory has.
  struct Held {
    Piece piece = {};
    bool changed = false;  // since it came from the disk
  };

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
  bool sweeping_ = false;
  std::array<Held, 2> held_;
  std::size_t latest_ = 0;  // of held_: what was asked for last
};

}  // namespace protrain::run
