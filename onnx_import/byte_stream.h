// ByteStream: a file read forwards in small pieces, as the wire format needs it: bytes, varints, runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"

namespace protrain::onnx_import {

// The file ends inside something that claims to go on; Code::format.
[[noreturn]] void fail_truncated(const File &file);
// Bytes that are no wire format; Code::format. `what` is a phrase like "wire type 7".
[[noreturn]] void fail_malformed(const File &file, std::uint64_t offset, const std::string &what);

class ByteStream {
 public:
  explicit ByteStream(const File &file, std::uint64_t begin = 0) : file_(file), position_(begin) {}  // file: lent

  const File &file() const { return file_; }
  std::uint64_t position() const { return position_; }
  void skip(std::uint64_t count) { position_ += count; }  // the caller has checked that they are there

  std::uint64_t varint(std::uint64_t end);           // lies before `end`, at most 10 bytes
  void copy(std::uint64_t count, std::string &out);  // appends

 private:
  std::uint8_t next();
  void fill();  // makes the byte at position_ available

  const File &file_;
  std::uint64_t position_;
  std::uint64_t held_begin_ = 0;  // position of held_[0]
  std::vector<std::byte> held_;
};

}  // namespace protrain::onnx_import
