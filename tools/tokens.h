// Token ids from a file: raw uint16 or uint32, or llm.c's format (a header of 256 int32, then uint16 or uint32).
#pragma once

#include <vector>

#include "input_file.h"

namespace tool {

class TokenFile {
 public:
  // `type` is "uint16", "uint32", or "" if the user gave no type. Without a type, a raw file is read as uint16, and
  // Failure is thrown if it looks like uint32. Also throws Failure if the file does not hold a whole number of tokens,
  // if the header contradicts the file's size or `type`, or if the header's version is unknown.
  TokenFile(const std::string &path, const std::string &type);

  const std::string &path() const { return file_.path(); }
  std::uint64_t count() const { return count_; }
  const char *type() const { return width_ == 2 ? "uint16" : "uint32"; }
  // Reads tokens [begin, begin + out.size()), which must exist.
  void read(std::uint64_t begin, std::vector<std::int64_t> &out);

 private:
  bool read_header();  // false: the file is raw
  bool looks_like_uint32() const;

  InputFile file_;
  std::uint64_t data_offset_ = 0;
  std::uint64_t count_ = 0;
  std::size_t width_ = 2;  // bytes of a token
  std::vector<unsigned char> raw_;
};

}  // namespace tool
