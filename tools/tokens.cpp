// llm.c's data files begin with a magic number, a version and the number of tokens (dev/data/data_common.py there).
#include "tokens.h"

#include <fmt/format.h>

#include <algorithm>
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

constexpr std::size_t kSampleBytes = 1 << 20;
constexpr std::size_t kFewestPairs = 8;  // pairs of 16-bit words; fewer prove nothing
constexpr std::uint16_t kMostUpper = 3;  // of the upper half of a uint32 id: no vocabulary has more than 2^18 tokens

std::size_t width_of(const std::string &type) { return type == "uint32" ? 4 : 2; }

}  // namespace

TokenFile::TokenFile(const std::string &path, const std::string &type) : file_(path), width_(width_of(type)) {
  const bool headed = read_header();
  if (headed && !type.empty() && width_ != width_of(type))
    throw Failure(fmt::format("{}: its header says {}, not {}", path, this->type(), type));
  const std::uint64_t bytes = file_.size() - data_offset_;
  if (bytes % width_ != 0)
    throw Failure(fmt::format("{}: {} bytes of tokens are no multiple of {}, the size of a {}", path, bytes, width_,
                              this->type()));
  if (headed && count_ != bytes / width_)
    throw Failure(fmt::format("{}: {} bytes of tokens do not fit the {} it announces", path, bytes, count_));
  count_ = bytes / width_;
  if (!headed && type.empty() && looks_like_uint32())
    throw Failure(
        fmt::format("{}: every second 16-bit word is nearly zero, so this looks like uint32; say "
                    "--token-type uint32, or uint16 if it is not",
                    path));
}

bool TokenFile::read_header() {
  std::array<std::int32_t, 3> header{};
  if (file_.size() >= kHeaderBytes) file_.read(0, header.data(), sizeof header);
  for (const Format &format : kFormats) {
    if (header[0] != format.magic) continue;
    if (header[1] != format.version)
      throw Failure(fmt::format("{}: version {} of this token format is not known", path(), header[1]));
    data_offset_ = kHeaderBytes;
    width_ = format.width;
    count_ = static_cast<std::uint32_t>(header[2]);
    return true;
  }
  return false;
}

// True if the 16-bit words of the file look like halves of uint32 ids: every second word, which would be an upper half,
// is nearly zero, and some other words are not. In a file of uint16 ids, large values stand at all places.
bool TokenFile::looks_like_uint32() const {
  std::vector<std::uint16_t> words(std::min<std::uint64_t>(file_.size(), kSampleBytes) / 4 * 2);
  if (file_.size() % 4 != 0 || words.size() < 2 * kFewestPairs) return false;
  file_.read(0, words.data(), words.size() * sizeof words[0]);
  std::uint16_t lower = 0, upper = 0;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    lower = std::max(lower, words[i]);
    upper = std::max(upper, words[i + 1]);
  }
  return upper <= kMostUpper && lower > kMostUpper;
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
