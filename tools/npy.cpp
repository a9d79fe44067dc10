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

constexpr std::size_t kLongestDescr = 40;  // of an unknown type, in a message

struct Descr {
  std::string_view text;
  protrain_dtype dtype;
};
constexpr Descr kDescrs[] = {{"<f4", PROTRAIN_FLOAT32}, {"<f8", PROTRAIN_FLOAT64}, {"<f2", PROTRAIN_FLOAT16},
                             {"|i1", PROTRAIN_INT8},    {"<i2", PROTRAIN_INT16},   {"<i4", PROTRAIN_INT32},
                             {"<i8", PROTRAIN_INT64},   {"|u1", PROTRAIN_UINT8},   {"<u2", PROTRAIN_UINT16},
                             {"<u4", PROTRAIN_UINT32},  {"<u8", PROTRAIN_UINT64},  {"|b1", PROTRAIN_BOOL}};

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

ArrayLayout parse(const std::string &header, const InputFile &file, std::uint64_t offset) {
  const std::string_view descr = field(header, "descr"), order = field(header, "fortran_order");
  const Descr *known = nullptr;
  for (const Descr &d : kDescrs)
    if (descr.substr(0, descr.find('\'', 1)).ends_with(d.text)) known = &d;
  if (descr.starts_with("'>"))
    throw Failure(
        fmt::format("{}: its elements are big-endian; save the array as little-endian, in NumPy with "
                    "array.astype(array.dtype.newbyteorder('<'))",
                    file.path()));
  if (known == nullptr)
    throw Failure(
        fmt::format("{}: elements of type {} are not known; save the array as numbers, such as int64 or float32",
                    file.path(), descr.substr(0, std::min(descr.find('\'', 1), kLongestDescr) + 1)));
  const auto shape = tuple(field(header, "shape"));
  if (!shape) throw Failure(fmt::format("{}: its header has no shape", file.path()));
  if (!takes_bytes(known->dtype, *shape, file.size() - offset))
    throw Failure(fmt::format("{}: {} bytes of data do not fit its shape", file.path(), file.size() - offset));
  return {known->dtype, *shape, offset, order.starts_with("True")};
}

}  // namespace

std::string npy_descr(protrain_dtype dtype, const std::string &path) {
  for (const Descr &descr : kDescrs)
    if (descr.dtype == dtype) return std::string(descr.text);
  throw Failure(fmt::format("{}: NumPy has no type for these elements", path));
}

ArrayLayout npy_layout(const InputFile &file) {
  unsigned char start[12] = {};
  if (file.size() >= sizeof start) file.read(0, start, sizeof start);
  if (std::string_view(reinterpret_cast<char *>(start), kMagic.size()) != kMagic || start[6] < 1 || start[6] > 3)
    throw Failure(
        fmt::format("{}: not a .npy file; save each array in one of its own, as numpy.save does", file.path()));
  const bool wide = start[6] > 1;  // from version 2 on the length takes 4 bytes
  const std::size_t length =
      wide ? start[8] | start[9] << 8 | start[10] << 16 | static_cast<std::size_t>(start[11]) << 24
           : static_cast<std::size_t>(start[8] | start[9] << 8);
  if (length > kLargestHeader) throw Failure(fmt::format("{}: a header of {} bytes", file.path(), length));
  std::string header(length, '\0');
  const std::uint64_t begin = wide ? 12 : 10;
  file.read(begin, header.data(), length);
  return parse(header, file, begin + length);
}

}  // namespace tool
