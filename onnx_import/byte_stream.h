// ByteStream: reads a file forwards, in the units of protobuf's wire format: bytes, varints, and byte strings of given
// length.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"

namespace protrain::onnx_import {

// Throws Code::format: the file ends inside a field or message.
[[noreturn]] void fail_truncated(const File &file);
// Throws Code::format: the bytes are not in the wire format. `what` is a phrase like "wire type 7".
[[noreturn]] void fail_malformed(const File &file, std::uint64_t offset, const std::string &what);

class ByteStream {
 public:
  // `file` must outlive the stream
  explicit ByteStream(const File &file, std::uint64_t begin = 0) : file_(file), position_(begin) {}

  const File &file() const { return file_; }
  std::uint64_t position() const { return position_; }
  void skip(std::uint64_t count) { position_ += count; }  // the caller has checked that these bytes exist

  std::uint64_t varint(std::uint64_t end);           // must end before `end`, at most 10 bytes
  void copy(std::uint64_t count, std::string &out);  // appends `count` bytes to `out`

 private:
  std::uint8_t next();
  void fill();  // makes the byte at position_ available

  const File &file_;
  std::uint64_t position_;
  std::uint64_t held_begin_ = 0;  // position of held_[0]
  std::vector<std::byte> held_;
};

}  // namespace protrain::onnx_import
