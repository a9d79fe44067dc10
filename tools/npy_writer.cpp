#include "npy_writer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>

#include "handles.h"
#include "npy.h"

namespace tool {

NpyWriter::NpyWriter(const std::string &path, protrain_dtype dtype, const std::vector<std::int64_t> &shape)
    : path_(path), file_(std::fopen(path.c_str(), "wb")) {
  if (!file_) fail();
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}",
                                   npy_descr(dtype, path), fmt::join(shape, ", "));
  constexpr std::size_t kStart = 10, kAlignment = 64;  // the data begin at a multiple of 64 bytes, as the format says
  header.append(kAlignment - 1 - (kStart + header.size()) % kAlignment, ' ');
  header += '\n';
  const char start[kStart] = {'\x93',
                              'N',
                              'U',
                              'M',
                              'P',
                              'Y',
                              1,
                              0,
                              static_cast<char>(header.size() & 255),
                              static_cast<char>(header.size() >> 8)};
  if (std::fwrite(start, 1, kStart, file_.get()) != kStart ||
      std::fwrite(header.data(), 1, header.size(), file_.get()) != header.size())
    fail();
}

void NpyWriter::append(const std::vector<std::byte> &slice) {
  if (std::fwrite(slice.data(), 1, slice.size(), file_.get()) != slice.size()) fail();
}

void NpyWriter::finish() {
  if (std::fflush(file_.get()) != 0) fail();
}

void NpyWriter::fail() const { throw Failure(fmt::format("{}: {}", path_, std::strerror(errno))); }

}  // namespace tool
