#include "run/store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/shape.h"

namespace protrain::run {

// Limits the size of pieces to that of the disk, so that sums of sizes do not overflow. The limit changes nothing else,
// because no array is larger than the disk: an array that was one piece before is still one piece.
Store::Room Store::with_fitting_pieces(Room room) {
  const std::uint64_t disk = round_up(std::max<std::uint64_t>(room.bytes[Tier::disk], 1), kDiskAlignment);
  room.piece_bytes = std::min(room.piece_bytes, disk);
  return room;
}

Store::Store(backend::Device &device, Room room) : device_(device), room_(with_fitting_pieces(std::move(room))) {
  device_arena_ = static_cast<std::byte *>(device.allocate_arena(room_.bytes[Tier::device] - room_.frozen.size()));
  if (room_.bytes[Tier::disk] > 0) {
    require(!room_.directory.empty(), Code::arg, "offload_dir",
            "the plan puts state on disk; say where with offload_dir");
    disk_ = std::make_unique<SpillFile>(room_.directory, room_.bytes[Tier::disk]);
  }
  if (room_.bytes[Tier::host] == 0) return;
  host_ = MemoryBlock(room_.bytes[Tier::host], "host slab");
  // Pinning comes last, because the destructor alone unpins the slab, and the destructor does not run if this
  // constructor throws. If the slab were freed while it is pinned, the driver would go on copying to and from the old
  // pages, even for new memory at the same addresses.
  pinned_bytes_ = device.pin(host_.data(), host_.size());
}

Store::~Store() {
  if (pinned_bytes_ > 0) device_.unpin(host_.data());
}

std::byte *Store::address(const program::Buffer &buffer, std::uint64_t offset) const {
  require(buffer.tier != Tier::disk, Code::internal, buffer.name, "what lies on disk has no address");
  return at(buffer.tier, buffer.offset + offset);
}

std::byte *Store::at(Tier tier, std::uint64_t offset) const {
  if (tier == Tier::host) return host_.data() + offset;
  const std::uint64_t frozen = room_.frozen.size();
  return offset < frozen ? room_.frozen.data() + offset : device_arena_ + (offset - frozen);
}

// Calls `act` with the offset and the size of each piece of an array.
template <typename Do>
void Store::each_piece(std::uint64_t bytes, Do &&act) const {
  for (std::uint64_t at = 0; at < bytes; at += room_.piece_bytes) act(at, std::min(room_.piece_bytes, bytes - at));
}

void Store::declare_disk(std::uint64_t offset, std::uint64_t bytes) {
  each_piece(bytes, [&](std::uint64_t at, std::uint64_t part) { disk_->declare(offset + at, part); });
}

void Store::read_disk(std::uint64_t offset, std::byte *to, std::uint64_t bytes) {
  each_piece(bytes, [&](std::uint64_t at, std::uint64_t part) { disk_->read(offset + at, {to + at, part}); });
}

void Store::write_disk(std::uint64_t offset, const std::byte *from, std::uint64_t bytes) {
  each_piece(bytes, [&](std::uint64_t at, std::uint64_t part) { disk_->write(offset + at, {from + at, part}); });
}

void Store::clear_disk(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes == 0) return;  // such as a rank's shard of a small array
  std::byte *zeros = staging(std::min(bytes, room_.piece_bytes));
  std::memset(zeros, 0, std::min(bytes, room_.piece_bytes));
  each_piece(bytes, [&](std::uint64_t at, std::uint64_t part) { disk_->write(offset + at, {zeros, part}); });
}

std::byte *Store::staging(std::uint64_t bytes) {
  for (const Tier tier : {Tier::host, Tier::device}) {
    const std::uint64_t results_end = tier == Tier::device ? results_end_ : 0;
    const std::uint64_t begin = round_up(std::max(room_.state_bytes[tier], results_end), kDiskAlignment);
    const bool reachable = tier == Tier::host || device_.info().shares_memory;
    if (reachable && begin + bytes <= room_.bytes[tier]) return at(tier, begin);
  }
  if (staging_.size() < bytes) staging_ = MemoryBlock(bytes, "disk staging");
  return staging_.data();
}

void Store::read(const program::Buffer &buffer, std::uint64_t offset, void *out, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (buffer.tier != Tier::disk) return device_.read(out, address(buffer, offset), bytes);
  const std::uint64_t end = offset + bytes;
  for (std::uint64_t at = offset; at < end;) {
    const Piece piece = {&buffer, at / room_.piece_bytes * room_.piece_bytes};
    const std::uint64_t part = std::min(end, piece.begin + room_.piece_bytes) - at;
    const std::byte *from = place(hold(piece, false));
    std::memcpy(static_cast<std::byte *>(out) + (at - offset), from + (at - piece.begin), part);
    at += part;
  }
}

void Store::write(const program::Buffer &buffer, std::uint64_t offset, const void *from, std::uint64_t bytes) {
  if (bytes == 0) return;
  if (buffer.tier != Tier::disk) return device_.write(address(buffer, offset), from, bytes);
  const std::uint64_t end = offset + bytes;
  for (std::uint64_t at = offset; at < end;) {
    const Piece piece = {&buffer, at / room_.piece_bytes * room_.piece_bytes};
    const std::uint64_t part = std::min(end, piece.begin + room_.piece_bytes) - at;
    const std::size_t which = hold(piece, part == piece_bytes(piece));
    std::memcpy(place(which) + (at - piece.begin), static_cast<const std::byte *>(from) + (at - offset), part);
    held_[which].changed = true;
    if (!sweeping_) write_back(which);
    at += part;
  }
}

std::uint64_t Store::piece_bytes(const Piece &piece) const {
  return std::min(room_.piece_bytes, piece.buffer->bytes - piece.begin);
}

std::byte *Store::place(std::size_t which) {
  return staging(held_.size() * room_.piece_bytes) + which * room_.piece_bytes;
}

// Makes sure that staging memory holds the piece, and returns the piece's index in held_. During a sweep, a piece that
// is held already is used as it is. Outside of sweeps, held pieces may be out of date and are not used again. A new
// piece takes the place of the held piece that was used less recently. The new piece is read from the disk, unless
// `overwritten` promises that the caller overwrites the whole piece.
std::size_t Store::hold(const Piece &piece, bool overwritten) {
  for (std::size_t which = 0; which < held_.size(); ++which)
    if (sweeping_ && held_[which].piece == piece) return latest_ = which;
  latest_ = 1 - latest_;
  write_back(latest_);
  if (!overwritten) read_disk(piece.buffer->offset + piece.begin, place(latest_), piece_bytes(piece));
  held_[latest_] = {piece};
  return latest_;
}

// Gives up piece `which` of held_. If the piece was changed, writes it to the disk.
void Store::write_back(std::size_t which) {
  const auto [piece, changed] = std::exchange(held_[which], Held{});
  if (!changed) return;
  try {
    write_disk(piece.buffer->offset + piece.begin, place(which), piece_bytes(piece));
  } catch (Error &error) {  // the whole piece is lost, not only what was to be written
    error.facts.state_broken = true;
    throw;
  }
}

void Store::write_back_all() {
  for (std::size_t which = 0; which < held_.size(); ++which) write_back(which);
}

}  // namespace protrain::run
