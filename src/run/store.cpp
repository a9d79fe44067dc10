#include "run/store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/shape.h"

namespace protrain::run {

Store::Store(backend::Device &device, const Bytes &bytes, const Bytes &state_bytes, const std::string &directory)
    : device_(device), bytes_(bytes), state_bytes_(state_bytes) {
  device_arena_ = static_cast<std::byte *>(device.allocate_arena(bytes[static_cast<std::size_t>(Tier::device)]));
  if (const std::uint64_t host = bytes[static_cast<std::size_t>(Tier::host)]; host > 0)
    host_ = Block(host, "host slab");
  if (const std::uint64_t disk = bytes[static_cast<std::size_t>(Tier::disk)]; disk > 0) {
    require(!directory.empty(), Code::arg, "offload_dir", "the plan puts {} on disk; say where with offload_dir",
            "state");
    disk_ = std::make_unique<SpillFile>(directory, disk);
  }
}

std::byte *Store::address(const program::Buffer &buffer, std::uint64_t offset) const {
  require(buffer.tier != Tier::disk, Code::internal, buffer.name, "what lies on disk has no address");
  return arena(buffer.tier) + buffer.offset + offset;
}

void Store::declare_disk(std::uint64_t offset, std::uint64_t bytes) { disk_->declare(offset, bytes); }

void Store::read_disk(std::uint64_t offset, std::byte *to, std::uint64_t bytes) { disk_->read(offset, {to, bytes}); }

void Store::write_disk(std::uint64_t offset, const std::byte *from, std::uint64_t bytes) {
  disk_->write(offset, {from, bytes});
}

std::byte *Store::staging(std::uint64_t bytes) {
  for (const Tier tier : {Tier::host, Tier::device}) {
    const auto t = static_cast<std::size_t>(tier);
    const std::uint64_t begin = round_up(state_bytes_[t], kDiskAlignment);
    const bool reachable = tier == Tier::host || device_.info().shares_memory;
    if (reachable && begin + bytes <= bytes_[t]) return arena(tier) + begin;
  }
  if (staging_.size() < bytes) staging_ = Block(bytes, "disk staging");
  return staging_.data();
}

void Store::read(const program::Buffer &buffer, std::uint64_t offset, void *out, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (buffer.tier != Tier::disk) return device_.read(out, address(buffer, offset), bytes);
  std::memcpy(out, piece(buffer, false) + offset, bytes);
}

void Store::write(const program::Buffer &buffer, std::uint64_t offset, const void *from, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (buffer.tier != Tier::disk) return device_.write(address(buffer, offset), from, bytes);
  std::byte *at = piece(buffer, bytes == buffer.bytes) + offset;
  if (from != at) std::memcpy(at, from, bytes);
  held_ = &buffer;
  changed_ = true;
  if (!sweeping_) write_back();
}

// All of a buffer that lies on disk, in staging memory.
std::byte *Store::piece(const program::Buffer &buffer, bool overwritten) {
  if (held_ == &buffer) return staging(buffer.bytes);
  write_back();
  std::byte *at = staging(buffer.bytes);
  if (!overwritten) read_disk(buffer.offset, at, buffer.bytes);
  if (sweeping_) held_ = &buffer;
  return at;
}

void Store::write_back() {
  const program::Buffer *held = std::exchange(held_, nullptr);
  if (std::exchange(changed_, false)) write_disk(held->offset, staging(held->bytes), held->bytes);
}

}  // namespace protrain::run
