// Files that are checked piece by piece: a checksum for every 16 MiB, and never more than one buffer in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checksum.h"
#include "base/files.h"

namespace protrain::state {

inline constexpr std::uint64_t kPieceBytes = 16 << 20;
inline constexpr std::uint64_t kBufferBytes = 4 << 20;  // divides a piece

// What the manifest says about a file.
struct FileRecord {
  std::uint64_t bytes = 0;
  std::vector<std::string> pieces;  // a checksum each, the last of what is left
  bool operator==(const FileRecord &) const = default;
};

// Writes through `buffer`, kBufferBytes of the caller's.
class PieceWriter {
 public:
  PieceWriter(const std::string &path, std::span<std::byte> buffer) : file_(path), buffer_(buffer) {}

  void write(std::string_view text);
  // The part of the buffer that is free, never empty; advance() says how much of it was filled.
  std::span<std::byte> room();
  void advance(std::size_t bytes) { filled_ += bytes; }
  FileRecord commit();  // the file is whole, synced and in place

 private:
  void flush();

  FileWriter file_;
  std::span<std::byte> buffer_;
  std::size_t filled_ = 0;
  Digest digest_;
  FileRecord record_;
};

// What is read, front to back, with its place in the file.
using Take = std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>;

// Reads the pieces from the front to the one before `end` through `buffer`; Code::corrupt names the first that does
// not match its checksum. `take` sees bytes before their piece has been compared.
void scan(const File &file, const FileRecord &record, std::uint64_t end, std::span<std::byte> buffer, const Take &take);

inline std::uint64_t piece_count(std::uint64_t bytes) { return bytes / kPieceBytes + (bytes % kPieceBytes != 0); }

}  // namespace protrain::state
