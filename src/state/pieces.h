// Reads and writes files that have one checksum per piece of 16 MiB. Data pass through a buffer of 4 MiB, so a whole
// file is never in memory.
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

// A file's entry in the manifest.
struct FileRecord {
  std::uint64_t bytes = 0;
  std::vector<std::string> pieces;  // one checksum each; the last piece may be shorter
  bool operator==(const FileRecord &) const = default;
};

// Writes a file and computes the checksums of its pieces. `buffer` belongs to the caller and has kBufferBytes.
class PieceWriter {
 public:
  PieceWriter(const std::string &path, std::span<std::byte> buffer) : file_(path), buffer_(buffer) {}

  void write(std::string_view text);
  // Returns the free part of the buffer, which is never empty. The caller fills it from the front, and tells advance()
  // how many bytes it filled.
  std::span<std::byte> room();
  void advance(std::size_t bytes) { filled_ += bytes; }
  FileRecord commit();  // afterwards the file is complete, synced and in place

 private:
  void flush();

  FileWriter file_;
  std::span<std::byte> buffer_;
  std::size_t filled_ = 0;
  Digest digest_;
  FileRecord record_;
};

// Receives bytes front to back, with their offset in the file.
using Take = std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>;

// Reads pieces 0 to `end` - 1 through `buffer`. Code::corrupt names the first piece that does not match its checksum.
// `take` sees bytes before their piece has been checked.
void scan(const File &file, const FileRecord &record, std::uint64_t end, std::span<std::byte> buffer, const Take &take);

inline std::uint64_t piece_count(std::uint64_t bytes) { return bytes / kPieceBytes + (bytes % kPieceBytes != 0); }

}  // namespace protrain::state
