#include "state/pieces.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace protrain::state {

static_assert(kPieceBytes % kBufferBytes == 0);  // so that a full buffer ends a piece or lies inside one

void PieceWriter::write(std::string_view text) {
  while (!text.empty()) {
    const std::span<std::byte> free = room();
    const std::size_t part = std::min(free.size(), text.size());
    std::memcpy(free.data(), text.data(), part);
    advance(part);
    text.remove_prefix(part);
  }
}

std::span<std::byte> PieceWriter::room() {
  if (filled_ == buffer_.size()) flush();
  return buffer_.subspan(filled_);
}

void PieceWriter::flush() {
  const std::span<const std::byte> bytes = buffer_.first(filled_);
  file_.write(bytes);
  digest_.add(bytes);
  if (file_.position() % kPieceBytes == 0) record_.pieces.push_back(digest_.finish());
  filled_ = 0;
}

FileRecord PieceWriter::commit() {
  if (filled_ > 0) flush();
  record_.bytes = file_.position();
  if (record_.bytes % kPieceBytes != 0) record_.pieces.push_back(digest_.finish());
  file_.commit();
  return record_;
}

void scan(const File &file, const FileRecord &record, std::uint64_t end, std::span<std::byte> buffer,
          const Take &take) {
  Digest digest;
  for (std::uint64_t piece = 0; piece < std::min<std::uint64_t>(end, record.pieces.size()); ++piece) {
    const std::uint64_t begin = piece * kPieceBytes, stop = std::min(begin + kPieceBytes, record.bytes);
    for (std::uint64_t at = begin; at < stop;) {
      const std::span<std::byte> part = buffer.first(std::min<std::uint64_t>(buffer.size(), stop - at));
      file.read(at, part);
      digest.add(part);
      if (take) take(at, part);
      at += part.size();
    }
    require(digest.finish() == record.pieces[piece], Code::corrupt, file.path(),
            "bytes {} to {} do not match their checksum", begin, stop);
  }
}

}  // namespace protrain::state
