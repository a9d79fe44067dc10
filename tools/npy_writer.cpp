#include "npy_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "handles.h"
#include "npy.h"

namespace tool {

namespace {

std::string unfinished_name(const std::filesystem::path &path) {
  return path.parent_path() / fmt::format(".{}-{}.tmp", path.filename().string(), getpid());
}

}  // namespace

NpyWriter::NpyWriter(const std::string &path, protrain_dtype dtype, const std::vector<std::int64_t> &shape)
    : path_(path), unfinished_(unfinished_name(path)), file_(std::fopen(unfinished_.c_str(), "wb")) {
  if (!file_) fail();
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}",
                                   npy_descr(dtype, path), fmt::join(shape, ", "));
  constexpr std::size_t kStart = 10, kAlignment = 64;  // the data begin at a multiple of 64 bytes, as the format says
  header.append(kAlignment - 1 - (kStart + header.size()) % kAlignment, ' ');
  header += '\n';
  std::string start = "\x93NUMPY";
  for (const std::size_t byte : {std::size_t{1}, std::size_t{0}, header.size() & 255, header.size() >> 8})
    start += static_cast<char>(byte);  // the version, then the header's length
  if (std::fwrite(start.data(), 1, kStart, file_.get()) != kStart ||
      std::fwrite(header.data(), 1, header.size(), file_.get()) != header.size())
    fail();
}

NpyWriter::~NpyWriter() {
  if (!unfinished_.empty()) unlink(unfinished_.c_str());
}

void NpyWriter::append(const std::vector<std::byte> &slice) {
  if (std::fwrite(slice.data(), 1, slice.size(), file_.get()) != slice.size()) fail();
}

void NpyWriter::finish() {
  if (std::fclose(file_.release()) != 0) fail();
  if (std::rename(unfinished_.c_str(), path_.c_str()) != 0) fail();
  unfinished_.clear();
}

void NpyWriter::fail() const { throw Failure(fmt::format("{}: {}", path_, std::strerror(errno))); }

}  // namespace tool
