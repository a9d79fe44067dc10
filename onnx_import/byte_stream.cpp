// Buffered reading: holds at most 64 KiB of the file at a time.
#include "onnx_import/byte_stream.h"

#include <algorithm>

#include "base/error.h"

namespace protrain::onnx_import {

namespace {
constexpr std::uint64_t kHeldBytes = 64 << 10;
}

void fail_truncated(const File &file) {
  fail(Code::format, file.path(), "truncated at byte {}, or not an ONNX model", file.size());
}

void fail_malformed(const File &file, std::uint64_t offset, const std::string &what) {
  fail(Code::format, file.path(), "not an ONNX model, or a damaged one: {} at byte {}", what, offset);
}

void ByteStream::fill() {
  if (position_ >= file_.size()) fail_truncated(file_);
  held_.resize(std::min(kHeldBytes, file_.size() - position_));
  held_begin_ = position_;
  file_.read(position_, held_);
}

std::uint8_t ByteStream::next() {
  if (position_ < held_begin_ || position_ - held_begin_ >= held_.size()) fill();
  return static_cast<std::uint8_t>(held_[position_++ - held_begin_]);
}

std::uint64_t ByteStream::varint(std::uint64_t end) {
  const std::uint64_t begin = position_;
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (position_ >= end && end < file_.size()) fail_malformed(file_, begin, "a varint that runs out of its message");
    const std::uint64_t byte = next();
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  fail_malformed(file_, begin, "a varint of more than 10 bytes");
}

void ByteStream::copy(std::uint64_t count, std::string &out) {
  while (count > 0) {
    if (position_ < held_begin_ || position_ - held_begin_ >= held_.size()) fill();
    const std::uint64_t begin = position_ - held_begin_;
    const std::uint64_t part = std::min<std::uint64_t>(count, held_.size() - begin);
    out.append(reinterpret_cast<const char *>(held_.data() + begin), part);
    position_ += part;
    count -= part;
  }
}

}  // namespace protrain::onnx_import
