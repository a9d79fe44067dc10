#include "state/part_file.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace protrain::state {

namespace {

// Returns the file's header. First checks the checksums of the pieces that hold it.
std::string read_header(const File &file, const FileRecord &record, std::span<std::byte> buffer) {
  std::string text(std::min(kLengthBytes, record.bytes), '\0');
  scan(file, record, 1, buffer, nullptr);
  file.read(0, std::as_writable_bytes(std::span(text)));
  const std::uint64_t length = header_length(text, record.bytes, file.path()), end = kLengthBytes + length;
  text.clear();
  scan(file, record, piece_count(end), buffer, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
    const std::uint64_t wanted = offset < end ? std::min<std::uint64_t>(bytes.size(), end - offset) : 0;
    text.append(reinterpret_cast<const char *>(bytes.data()), wanted);
  });
  return text.substr(kLengthBytes);
}

}  // namespace

bool contains(const std::vector<DirectoryEntry> &entries, const std::string &name) {
  return std::ranges::find(entries, name, &DirectoryEntry::name) != entries.end();
}

PartFile open_part(const std::string &root, const std::string &folder, const std::string &name,
                   const FileRecord &record) {
  const std::string path = root + "/" + folder + name;
  require(contains(list_directory(root + "/" + folder), name), Code::corrupt, path,
          "is missing; the manifest beside it expects {} bytes", record.bytes);
  PartFile part{.file = File::open_beneath(root, folder + name), .record = record, .data_begin = 0, .tensors = {}};
  require(part.file.size() == record.bytes, Code::corrupt, path, "has {} bytes; the manifest beside it expects {}",
          part.file.size(), record.bytes);
  std::vector<std::byte> buffer(kBufferBytes);
  const std::string header = read_header(part.file, record, buffer);
  part.data_begin = kLengthBytes + header.size();
  part.tensors = parse_header(header, record.bytes - part.data_begin, path);
  for (const Tensor &tensor : part.tensors)
    require(tensor.dtype == DType::f32 || tensor.dtype == DType::u8, Code::unsupported, path,
            "{} is {}; checkpoints hold float32, and codes in uint8", printable(tensor.name), name_of(tensor.dtype));
  return part;
}

std::optional<ArrayName> array_of(const std::string &tensor) {
  const std::size_t slash = tensor.rfind('/');
  if (slash == std::string::npos || slash + 1 == tensor.size()) return std::nullopt;
  return ArrayName{.parameter = tensor.substr(0, slash), .array = tensor.substr(slash + 1)};
}

Shape whole_shape(const Shape &of_parameter, std::uint64_t elements) {
  const bool same = static_cast<std::uint64_t>(element_count(of_parameter)) == elements;
  return same ? of_parameter : Shape{static_cast<std::int64_t>(elements)};
}

std::vector<Tensor> whole_tensors(const std::vector<PartFile> &parts, const ShapeOf &shape_of) {
  if (parts.size() == 1) return parts[0].tensors;
  struct Sum {
    DType dtype = DType::none;  // of the first part
    std::uint64_t bytes = 0;    // of all parts
  };
  std::map<std::string, Sum> sums;
  for (const PartFile &part : parts) {
    for (const Tensor &tensor : part.tensors) {
      Sum &sum = &part == &parts.front() ? (sums[tensor.name] = {.dtype = tensor.dtype}) : sums[tensor.name];
      require(sum.dtype == tensor.dtype && tensor.shape.size() == 1, Code::format, part.file.path(),
              "{} is no run of elements that the first part has too", printable(tensor.name));
      sum.bytes = checked_add(sum.bytes, tensor.end - tensor.begin);
    }
    require(part.tensors.size() == sums.size(), Code::format, part.file.path(), "has {} tensors, the first part has {}",
            part.tensors.size(), sums.size());
  }
  std::vector<Tensor> whole;
  const std::string &file = parts.front().file.path();
  for (const Tensor &tensor : parts.front().tensors) {
    const std::uint64_t bytes = sums[tensor.name].bytes;
    const std::optional<Shape> shape = shape_of(tensor.name, bytes / size_of(tensor.dtype));
    require(shape.has_value(), Code::format, file, "the manifest has no shape for {}", printable(tensor.name));
    require(tensor_bytes(*shape, tensor.dtype) == bytes, Code::format, file,
            "all parts together have {} bytes of {}, of shape {}", bytes, printable(tensor.name), to_text(*shape));
    append_tensor(whole, tensor.name, *shape, tensor.dtype);
  }
  return whole;
}

}  // namespace protrain::state
