#include "state/part_file.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"

namespace protrain::state {

namespace {

// Reads the header from pieces whose checksums have matched.
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
    require(tensor.dtype == DType::f32, Code::unsupported, path, "{} is {}; checkpoints hold float32",
            printable(tensor.name), name_of(tensor.dtype));
  return part;
}

std::optional<ArrayName> array_of(const std::string &tensor) {
  const std::size_t slash = tensor.rfind('/');
  if (slash == std::string::npos || slash + 1 == tensor.size()) return std::nullopt;
  return ArrayName{.parameter = tensor.substr(0, slash), .array = tensor.substr(slash + 1)};
}

std::vector<Tensor> whole_tensors(const std::vector<PartFile> &parts,
                                  const std::function<const Shape *(const std::string &name)> &shape_of) {
  if (parts.size() == 1) return parts[0].tensors;
  std::map<std::string, std::uint64_t> bytes;
  for (const PartFile &part : parts) {
    for (const Tensor &tensor : part.tensors) {
      const bool known = &part == &parts.front() || bytes.contains(tensor.name);
      require(known && tensor.shape.size() == 1, Code::format, part.file.path(),
              "{} is no run of elements that the first part has too", printable(tensor.name));
      bytes[tensor.name] = checked_add(bytes[tensor.name], tensor.end - tensor.begin);
    }
    require(part.tensors.size() == bytes.size(), Code::format, part.file.path(),
            "has {} tensors, the first part has {}", part.tensors.size(), bytes.size());
  }
  std::vector<Tensor> whole;
  const std::string &file = parts.front().file.path();
  for (const Tensor &tensor : parts.front().tensors) {
    const Shape *shape = shape_of(tensor.name);
    require(shape != nullptr, Code::format, file, "the manifest has no shape for {}", printable(tensor.name));
    require(tensor_bytes(*shape) == bytes[tensor.name], Code::format, file,
            "all parts together have {} bytes of {}, of shape {}", bytes[tensor.name], printable(tensor.name),
            to_text(*shape));
    append_tensor(whole, tensor.name, *shape);
  }
  return whole;
}

}  // namespace protrain::state
