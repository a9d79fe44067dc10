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
  using Bytes = std::array<std::uint64_t, kTierCount>;

  // Takes `bytes` of each tier at once, none where 0; the first `state_bytes` hold from step to step. `directory`:
  // where the file on disk lies, unlinked.
  Store(backend::Device &device, const Bytes &bytes, const Bytes &state_bytes, const std::string &directory);

  // Device and host only.
  std::byte *address(const program::Buffer &buffer, std::uint64_t offset = 0) const;
  std::byte *arena(Tier tier) const { return tier == Tier::device ? device_arena_ : host_.data(); }

  // What is written to disk and read from there as one, before it first is.
  void declare_disk(std::uint64_t offset, std::uint64_t bytes);
  // Between a place on disk and memory; on the thread that calls, one at a time.
  void read_disk(std::uint64_t offset, std::byte *to, std::uint64_t bytes);
  void write_disk(std::uint64_t offset, const std::byte *from, std::uint64_t bytes);

  // Outside of steps: memory for what passes between the disk and the caller, whose content lasts until the next call.
  // What a step uses from one end to the other is free then; only where that is too small is more taken.
  std::byte *staging(std::uint64_t bytes);

  // `bytes` from `offset` of a buffer that holds from step to step, whatever its tier, to the caller's memory and back.
  // Outside of steps. On disk a chunk's array is one piece: reading a part reads all of it.
  void read(const program::Buffer &buffer, std::uint64_t offset, void *out, std::uint64_t bytes);
  void write(const program::Buffer &buffer, std::uint64_t offset, const void *from, std::uint64_t bytes);

  // For reading or writing everything, part by part: while a sweep lives, a piece of the disk stays in staging memory
  // and is moved once, however many of its parts are asked for in a row. Nothing else may use that memory meanwhile.
  class Sweep {
   public:
    explicit Sweep(Store &store) : store_(store) { store_.sweeping_ = true; }
    Sweep(const Sweep &) = delete;
    Sweep &operator=(const Sweep &) = delete;
    ~Sweep() {
      store_.sweeping_ = store_.changed_ = false;
      store_.held_ = nullptr;
    }
    void finish() { store_.write_back(); }  // what was written is on disk; without it the last piece is not

   private:
    Store &store_;
  };

 private:
  std::byte *piece(const program::Buffer &buffer, bool overwritten);
  void write_back();

  backend::Device &device_;
  std::byte *device_arena_ = nullptr;
  Block host_;
  std::unique_ptr<SpillFile> disk_;
  Bytes bytes_, state_bytes_;
  Block staging_;
  bool sweeping_ = false;
  const program::Buffer *held_ = nullptr;  // the piece that staging memory has
  bool changed_ = false;                   // since it came from the disk
};

}  // namespace protrain::run
