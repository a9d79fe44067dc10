#include "state/tensor_file.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "state/strict_json.h"

namespace protrain::state {

namespace {

constexpr const char *kMetadata = "__metadata__";  // texts about the file; no tensor can have this name

// Every type that is read, and its name in a header.
constexpr std::pair<DType, const char *> kTypes[] = {
    {DType::f32, "F32"}, {DType::f16, "F16"}, {DType::bf16, "BF16"}, {DType::u8, "U8"}};

Tensor tensor_of(const std::string &name, const Json &about, const std::string &file) {
  const std::string named = text_member(about, "dtype", file), shown = printable(name);
  const auto *const type = std::ranges::find(kTypes, named, &std::pair<DType, const char *>::second);
  require(type != std::end(kTypes), Code::unsupported, file, "{} is {}; F32, F16, BF16 and U8 are read", shown,
          printable(named));
  const DType dtype = type->first;
  const Json::Array &offsets = items(member(about, "data_offsets", file), "data_offsets", file);
  require(about.members()->size() == 3 && offsets.size() == 2, Code::format, file,
          "{} has more than dtype, shape and two data_offsets", shown);
  Tensor tensor{.name = name,
                .shape = shape_of(member(about, "shape", file), "a shape in its header", file),
                .begin = whole(offsets[0], "offset", file),
                .end = whole(offsets[1], "offset", file),
                .dtype = dtype};
  const std::optional<std::uint64_t> bytes = tensor_bytes(tensor.shape, dtype);
  require(bytes && tensor.begin <= tensor.end && tensor.end - tensor.begin == *bytes, Code::format, file,
          "{} has shape {} and bytes {} to {}, which do not fit together", shown, to_text(tensor.shape), tensor.begin,
          tensor.end);
  return tensor;
}

const char *type_name(DType dtype) {
  return std::ranges::find(kTypes, dtype, &std::pair<DType, const char *>::first)->second;
}

}  // namespace

std::optional<std::uint64_t> tensor_bytes(const Shape &shape, DType dtype) {
  std::uint64_t bytes = size_of(dtype);
  for (std::int64_t dim : shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dim), &bytes)) return std::nullopt;
  return bytes;
}

void append_tensor(std::vector<Tensor> &tensors, const std::string &name, const Shape &shape, DType dtype) {
  require(name != kMetadata, Code::unsupported, name, "a parameter of this name cannot be saved: rename it");
  const std::uint64_t begin = tensors.empty() ? 0 : tensors.back().end;
  tensors.push_back({.name = name,
                     .shape = shape,
                     .begin = begin,
                     .end = checked_add(begin, byte_count(dtype, shape)),
                     .dtype = dtype});
}

std::string header_of(const std::vector<Tensor> &tensors) {
  std::string text = "{";
  for (const Tensor &tensor : tensors)
    text +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", text.size() > 1 ? "," : "",
                    json_escape(tensor.name), type_name(tensor.dtype), to_text(tensor.shape), tensor.begin, tensor.end);
  text += "}";
  text.append((kDataAlignment - (kLengthBytes + text.size()) % kDataAlignment) % kDataAlignment, ' ');
  require(text.size() <= kHeaderLimit, Code::limit, "", "the names of {} tensors make a header of {} bytes, over {}",
          tensors.size(), text.size(), kHeaderLimit);
  std::string length;
  for (unsigned shift = 0; shift < 64; shift += 8) length += static_cast<char>(text.size() >> shift & 0xff);
  return length + text;
}

std::uint64_t header_length(std::string_view first_bytes, std::uint64_t file_bytes, const std::string &file) {
  require(first_bytes.size() >= kLengthBytes, Code::format, file, "is too short for a header");
  std::uint64_t length = 0;
  for (unsigned i = 0; i < kLengthBytes; ++i)
    length |= std::uint64_t{static_cast<unsigned char>(first_bytes[i])} << 8 * i;
  require(length <= kHeaderLimit, Code::limit, file, "a header of {} bytes; none is over {}", length, kHeaderLimit);
  require(length <= file_bytes - kLengthBytes, Code::format, file, "a header of {} bytes in a file of {}", length,
          file_bytes);
  return length;
}

Shape shape_of(const Json &dims, const char *what, const std::string &file) {
  Shape shape;
  for (const Json &dim : items(dims, what, file)) {
    const std::uint64_t size = whole(dim, "dimension", file);
    require(size <= std::numeric_limits<std::int64_t>::max(), Code::format, file, "a dimension is {}", size);
    shape.push_back(static_cast<std::int64_t>(size));
  }
  return shape;
}

std::vector<Tensor> parse_header(std::string_view header, std::uint64_t data_bytes, const std::string &file) {
  require(header.starts_with('{'), Code::format, file, "its header does not start with a brace");
  const Json json = parse_strictly(header, file);
  std::vector<Tensor> tensors;
  for (const auto &[name, about] : *json.members())
    if (name != kMetadata) tensors.push_back(tensor_of(name, about, file));
  // Sorts the tensors by the position of their data. Tensors without elements stay in the order of the header.
  std::ranges::stable_sort(tensors, {}, [](const Tensor &t) { return std::tie(t.begin, t.end); });
  std::uint64_t covered = 0;
  for (const Tensor &tensor : tensors) {
    require(tensor.begin == covered, Code::format, file, "{} starts at byte {} of the data, not at {}",
            printable(tensor.name), tensor.begin, covered);
    covered = tensor.end;
  }
  require(covered == data_bytes, Code::format, file, "its tensors take {} bytes, its data has {}", covered, data_bytes);
  return tensors;
}

std::vector<Tensor> tensors_of(const File &file) {
  const auto text_at = [&](std::uint64_t offset, std::uint64_t count) {
    std::string text(count, '\0');
    file.read(offset, std::as_writable_bytes(std::span(text)));
    return text;
  };
  require(file.size() >= kLengthBytes, Code::format, file.path(), "is too short for a header");
  const std::uint64_t length = header_length(text_at(0, kLengthBytes), file.size(), file.path());
  const std::uint64_t begin = kLengthBytes + length;
  std::vector<Tensor> tensors = parse_header(text_at(kLengthBytes, length), file.size() - begin, file.path());
  for (Tensor &tensor : tensors) {
    require(is_float(tensor.dtype), Code::unsupported, file.path(), "{} is {}; F32, F16 and BF16 are read",
            printable(tensor.name), type_name(tensor.dtype));
    tensor.begin += begin;
    tensor.end += begin;
  }
  return tensors;
}

}  // namespace protrain::state
