// Format: "\x93NUMPY", version, header length, and a Python dict such as {'descr': '<i8', 'fortran_order':
// False, 'shape': (10, 2, 32), }
#include "npy.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "handles.h"

namespace tool {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kLargestHeader = 64 << 10;

struct Descr {
  std::string_view text;
  protrain_dtype dtype;
  std::size_t bytes;
};
constexpr Descr kDescrs[] = {{"<f4", PROTRAIN_FLOAT32, 4}, {"<f8", PROTRAIN_FLOAT64, 8}, {"<f2", PROTRAIN_FLOAT16, 2},
                             {"|i1", PROTRAIN_INT8, 1},    {"<i2", PROTRAIN_INT16, 2},   {"<i4", PROTRAIN_INT32, 4},
                             {"<i8", PROTRAIN_INT64, 8},   {"|u1", PROTRAIN_UINT8, 1},   {"<u2", PROTRAIN_UINT16, 2},
                             {"<u4", PROTRAIN_UINT32, 4},  {"<u8", PROTRAIN_UINT64, 8},  {"|b1", PROTRAIN_BOOL, 1}};

// The text after "'key':" in the dict, without leading blanks.
std::string_view field(std::string_view header, std::string_view key) {
  const std::size_t at = header.find(fmt::format("'{}':", key));
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + key.size() + 3);
  return rest.substr(std::min(rest.find_first_not_of(' '), rest.size()));
}

// Parses "(10, 2, 32)".
std::optional<std::vector<std::int64_t>> tuple(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  std::vector<std::int64_t> numbers;
  for (;;) {
    text.remove_prefix(1);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    if (text.starts_with(')')) return numbers;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number < 0) return std::nullopt;
    numbers.push_back(number);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.starts_with(')')) return numbers;
    if (!text.starts_with(',')) return std::nullopt;
  }
}

const Descr &descr_of(protrain_dtype dtype, const std::string &subject) {
  for (const Descr &descr : kDescrs)
    if (descr.dtype == dtype) return descr;
  throw Failure(fmt::format("{}: NumPy has no type for these elements", subject));
}

}  // namespace

std::string npy_descr(protrain_dtype dtype, const std::string &path) { return std::string(descr_of(dtype, path).text); }
std::size_t npy_bytes(protrain_dtype dtype) { return descr_of(dtype, "output").bytes; }

NpyFile::NpyFile(const std::string &path) : file_(path) {
  unsigned char start[12] = {};
  if (file_.size() >= sizeof start) file_.read(0, start, sizeof start);
  if (std::string_view(reinterpret_cast<char *>(start), kMagic.size()) != kMagic || start[6] < 1 || start[6] > 3)
    throw Failure(fmt::format("{}: not a .npy file", path));
  const bool wide = start[6] > 1;  // from version 2 on the length takes 4 bytes
  const std::size_t length =
      wide ? start[8] | start[9] << 8 | start[10] << 16 | static_cast<std::size_t>(start[11]) << 24
           : static_cast<std::size_t>(start[8] | start[9] << 8);
  if (length > kLargestHeader) throw Failure(fmt::format("{}: a header of {} bytes", path, length));
  std::string header(length, '\0');
  file_.read(wide ? 12 : 10, header.data(), length);
  data_offset_ = (wide ? 12 : 10) + length;
  parse(header);
}

void NpyFile::parse(const std::string &header) {
  const std::string_view descr = field(header, "descr");
  const Descr *known = nullptr;
  for (const Descr &d : kDescrs)
    if (descr.substr(0, descr.find('\'', 1)).ends_with(d.text)) known = &d;
  if (known == nullptr) throw Failure(fmt::format("{}: elements of type {} are not known", path(), descr.substr(0, 8)));
  const auto shape = tuple(field(header, "shape"));
  if (!shape || shape->empty()) throw Failure(fmt::format("{}: an array with at least one axis is needed", path()));
  if (!field(header, "fortran_order").starts_with("False"))
    throw Failure(fmt::format("{}: the array is column-major; save numpy.ascontiguousarray of it", path()));
  std::size_t bytes = known->bytes;
  bool fits = true;
  for (std::size_t i = 1; i < shape->size(); ++i)
    fits &= !__builtin_mul_overflow(bytes, static_cast<std::size_t>((*shape)[i]), &bytes);
  std::uint64_t whole = 0;
  fits &= !__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(shape->front()), &whole);
  if (!fits || whole != file_.size() - data_offset_)
    throw Failure(fmt::format("{}: {} bytes of data do not fit its shape", path(), file_.size() - data_offset_));
  dtype_ = known->dtype;
  shape_ = *shape;
  slice_bytes_ = bytes;
}

void NpyFile::read_slice(std::uint64_t index, std::byte *out) const {
  file_.read(data_offset_ + index * slice_bytes_, out, slice_bytes_);
}

}  // namespace tool
