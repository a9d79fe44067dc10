// llm.c's data files begin with magic, version, count; see its dev/data/data_common.py.
#include "tokens.h"

#include <fmt/format.h>

#include <array>

#include "handles.h"

namespace tool {

namespace {

struct Format {
  std::int32_t magic, version;
  std::size_t width;
};
constexpr Format kFormats[] = {{20240520, 1, 2}, {20240801, 7, 4}};
constexpr std::uint64_t kHeaderBytes = 256 * 4;

}  // namespace

TokenFile::TokenFile(const std::string &path) : file_(path) {
  std::array<std::int32_t, 3> header{};
  if (file_.size() >= kHeaderBytes) file_.read(0, header.data(), sizeof header);
  for (const Format &format : kFormats) {
    if (header[0] != format.magic) continue;
    if (header[1] != format.version)
      throw Failure(fmt::format("{}: version {} of this token format is not known", path, header[1]));
    data_offset_ = kHeaderBytes;
    width_ = format.width;
  }
  const std::uint64_t bytes = file_.size() - data_offset_;
  count_ = bytes / width_;
  const bool counted = data_offset_ == 0 || static_cast<std::uint64_t>(static_cast<std::uint32_t>(header[2])) == count_;
  if (bytes % width_ != 0 || !counted)
    throw Failure(fmt::format("{}: {} bytes of tokens do not fit {}", path, bytes,
                              data_offset_ == 0 ? "uint16" : fmt::format("the {} it announces", header[2])));
}

void TokenFile::read(std::uint64_t begin, std::vector<std::int64_t> &out) {
  raw_.resize(out.size() * width_);
  file_.read(data_offset_ + begin * width_, raw_.data(), raw_.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = 0;
    for (std::size_t byte = 0; byte < width_; ++byte)
      out[i] |= static_cast<std::int64_t>(raw_[i * width_ + byte]) << (8 * byte);
  }
}

}  // namespace tool
