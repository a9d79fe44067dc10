// Reads and writes FlatBuffers (https://flatbuffers.dev/internals). Numbers are little-endian. A table begins with the
// distance to its vtable, which says where each field lies in the table. A field that is a string, a vector or a table
// holds the distance from itself to the data, which lie further back in the file.
//   Adapter: format_version, adapter_version, model_version: int32; parameters: [Parameter]
//   Parameter: name: string; dims: [int64]; data_type: int32, as in ONNX; raw_data: [uint8], at a multiple of 8
#include "draft/onnx_adapter.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <string>

#include "base/error.h"
#include "base/shape.h"
#include "base/text.h"

namespace protrain::draft {

namespace {

constexpr std::string_view kExtension = ".onnx_adapter", kIdentifier = "TORT";
constexpr std::int32_t kFormatVersion = 1;
constexpr std::uint64_t kMaxBytes = 0x7fffffff;  // FlatBuffers' limit
constexpr std::uint64_t kMaxParameters = 1 << 20, kMaxName = 1 << 16, kMaxRank = 8;
enum AdapterField { kVersion, kAdapterVersion, kModelVersion, kParameters };
enum ParameterField { kName, kDims, kDataType, kRawData };

struct OnnxType {
  DType dtype;
  std::int32_t number;
};
constexpr OnnxType kTypes[] = {{DType::f32, 1}, {DType::f16, 10}, {DType::f64, 11}, {DType::bf16, 16}};

class FlatReader {
 public:
  explicit FlatReader(const File &file) : file_(file) {
    require(file.size() <= kMaxBytes, Code::limit, file.path(), "has {} bytes; such a file holds 2 GiB", file.size());
    require(file.size() >= 8 && text(4, kIdentifier.size()) == kIdentifier, Code::format, file.path(),
            "is no file of ONNX Runtime's adapters, which have {} at byte 4", kIdentifier);
  }

  template <typename T>
  T number(std::uint64_t at) const {
    T value;
    read(at, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  std::string text(std::uint64_t at, std::uint64_t bytes) const {
    std::string found(bytes, '\0');
    read(at, std::as_writable_bytes(std::span(found)));
    return found;
  }
  // Returns the position of the data of the field at position `at`. The field holds the distance from itself to the
  // data.
  std::uint64_t target(std::uint64_t at) const { return at + number<std::uint32_t>(at); }
  // Returns the position of a table's field. Returns 0 if the table lacks the field.
  std::uint64_t field(std::uint64_t table, int field) const {
    const std::int64_t vtable = static_cast<std::int64_t>(table) - number<std::int32_t>(table);
    require(vtable >= 0, Code::format, file_.path(), "a table lies outside of the file");
    const auto at = static_cast<std::uint64_t>(vtable), place = 4 + 2 * static_cast<std::uint64_t>(field);
    if (place + 2 > number<std::uint16_t>(at)) return 0;
    const auto offset = number<std::uint16_t>(at + place);
    return offset == 0 ? 0 : table + offset;
  }
  std::int32_t integer(std::uint64_t table, int which) const {
    const std::uint64_t at = field(table, which);
    return at == 0 ? 0 : number<std::int32_t>(at);
  }

  struct Vector {
    std::uint64_t at = 0, length = 0;
  };
  // Returns a field that is a string or a vector. `element` is the size of an element in bytes, and `most` is the
  // largest allowed number of elements. A missing field counts as an empty vector.
  Vector vector(std::uint64_t table, int which, std::uint64_t element, std::uint64_t most) const {
    const std::uint64_t place = field(table, which);
    if (place == 0) return {};
    const std::uint64_t at = target(place), length = number<std::uint32_t>(at);
    require(length <= most && length * element <= file_.size() - (at + 4), Code::format, file_.path(),
            "a vector of {} elements does not fit", length);
    return {at + 4, length};
  }

 private:
  void read(std::uint64_t at, std::span<std::byte> out) const {
    require(at <= file_.size() && out.size() <= file_.size() - at, Code::format, file_.path(),
            "ends before byte {}, which it refers to", at + out.size());
    file_.read(at, out);
  }

  const File &file_;
};

state::Tensor tensor_at(const FlatReader &reader, std::uint64_t table, const File &file) {
  const FlatReader::Vector name = reader.vector(table, kName, 1, kMaxName),
                           dims = reader.vector(table, kDims, 8, kMaxRank),
                           data = reader.vector(table, kRawData, 1, kMaxBytes);
  state::Tensor tensor{
      .name = reader.text(name.at, name.length), .shape = {}, .begin = data.at, .end = data.at + data.length};
  for (std::uint64_t d = 0; d < dims.length; ++d)
    tensor.shape.push_back(reader.number<std::int64_t>(dims.at + d * sizeof(std::int64_t)));
  const std::int32_t number = reader.integer(table, kDataType);
  const auto type = std::ranges::find(kTypes, number, &OnnxType::number);
  require(type != std::end(kTypes), Code::unsupported, file.path(),
          "{} has ONNX's element type {}; float32, float64, float16 and bfloat16 are read", printable(tensor.name),
          number);
  tensor.dtype = type->dtype;
  require(std::ranges::all_of(tensor.shape, [](std::int64_t side) { return side >= 0; }) &&
              state::tensor_bytes(tensor.shape, tensor.dtype) == data.length,
          Code::format, file.path(), "{} is {} and has {} bytes", printable(tensor.name), to_text(tensor.shape),
          data.length);
  return tensor;
}

// Writes a FlatBuffer from front to back. A distance is written when its target is known.
class FlatBufferWriter {
 public:
  const std::string &bytes() const { return bytes_; }

  template <typename T>
  std::uint64_t put(T value) {
    const std::uint64_t at = bytes_.size();
    bytes_.append(reinterpret_cast<const char *>(&value), sizeof value);
    return at;
  }
  void put(const std::string &text) { bytes_ += text; }
  // Pads with zeros until the position `ahead` bytes further on is a multiple of `alignment`.
  void align(std::uint64_t alignment, std::uint64_t ahead = 0) {
    bytes_.resize(round_up(bytes_.size() + ahead, alignment) - ahead);
  }
  void point(std::uint64_t at, std::uint64_t target) {
    const auto distance = static_cast<std::uint32_t>(target - at);
    std::memcpy(&bytes_[at], &distance, sizeof distance);
  }
  // Writes the vtable and the beginning of a table that has `fields` fields of four bytes each. The caller then writes
  // the fields. Returns the position at which the table begins.
  std::uint64_t begin_table(int fields) {
    const auto size = static_cast<std::uint16_t>(4 + 4 * fields), vtable = static_cast<std::uint16_t>(4 + 2 * fields);
    align(4, vtable);
    put(vtable);
    put(size);
    for (int i = 0; i < fields; ++i) put(static_cast<std::uint16_t>(4 + 4 * i));
    return put(static_cast<std::int32_t>(vtable));
  }

 private:
  std::string bytes_;
};

std::int32_t number_of(DType dtype) { return std::ranges::find(kTypes, dtype, &OnnxType::dtype)->number; }

// Appends the fields of a Parameter, with 0 for the distance to its data. Returns the position of this distance, so
// that the caller can fill it in later.
std::uint64_t append_parameter(FlatBufferWriter &text, const state::Tensor &tensor) {
  const std::uint64_t name = text.put<std::uint32_t>(0), dims = text.put<std::uint32_t>(0);
  text.put(number_of(tensor.dtype));
  const std::uint64_t data = text.put<std::uint32_t>(0);
  text.point(name, text.put(static_cast<std::uint32_t>(tensor.name.size())));
  text.put(tensor.name + '\0');
  text.align(sizeof(std::int64_t), sizeof(std::uint32_t));
  text.point(dims, text.put(static_cast<std::uint32_t>(tensor.shape.size())));
  for (const std::int64_t side : tensor.shape) text.put(side);
  return data;
}

}  // namespace

bool is_onnx_adapter(const std::string &path) { return path.ends_with(kExtension); }

std::vector<state::Tensor> tensors_of_onnx_adapter(const File &file) {
  const FlatReader reader(file);
  const std::uint64_t root = reader.target(0);
  const std::int32_t version = reader.integer(root, kVersion);
  require(version == kFormatVersion, Code::version, file.path(), "has format version {}; {} is read", version,
          kFormatVersion);
  const FlatReader::Vector parameters = reader.vector(root, kParameters, sizeof(std::uint32_t), kMaxParameters);
  std::vector<state::Tensor> tensors;
  std::set<std::string> names;
  std::uint64_t bytes_of_names = 0;
  for (std::uint64_t i = 0; i < parameters.length; ++i) {
    state::Tensor tensor = tensor_at(reader, reader.target(parameters.at + i * sizeof(std::uint32_t)), file);
    require(names.insert(tensor.name).second, Code::format, file.path(), "has two tensors of the name {}",
            printable(tensor.name));

    // In a hostile file, many tensors can take their names from the same bytes. The names would then need far more
    // memory than the file's size.
    bytes_of_names += tensor.name.size();
    require(bytes_of_names <= file.size(), Code::format, file.path(), "has names of tensors that share their bytes");
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

void write_onnx_adapter(const std::string &path, const std::vector<state::Tensor> &tensors,
                        const std::function<std::vector<std::byte>(std::size_t tensor)> &values) {
  FlatBufferWriter text;
  const std::uint64_t root = text.put<std::uint32_t>(0);
  text.put(std::string(kIdentifier));
  text.point(root, text.begin_table(4));
  for (const std::int32_t version : {kFormatVersion, 1, 1}) text.put(version);
  const std::uint64_t list = text.put<std::uint32_t>(0);
  text.point(list, text.put(static_cast<std::uint32_t>(tensors.size())));
  std::vector<std::uint64_t> entries, data;
  for (std::size_t i = 0; i < tensors.size(); ++i) entries.push_back(text.put<std::uint32_t>(0));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    text.point(entries[i], text.begin_table(4));
    data.push_back(append_parameter(text, tensors[i]));
  }
  std::uint64_t at = text.bytes().size();
  const auto before_data = [](std::uint64_t end) { return round_up(end + 4, sizeof(std::int64_t)) - 4; };
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    at = before_data(at);
    text.point(data[i], at);
    at += 4 + *state::tensor_bytes(tensors[i].shape, tensors[i].dtype);
    require(at <= kMaxBytes, Code::limit, path, "the format holds 2 GiB");
  }
  FileWriter file(path);
  file.write(text.bytes());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    file.write(std::string(before_data(file.position()) - file.position(), '\0'));
    const std::vector<std::byte> bytes = values(i);
    const auto length = static_cast<std::uint32_t>(bytes.size());
    file.write(std::as_bytes(std::span(&length, 1)));
    file.write(bytes);
  }
  file.commit();
}

}  // namespace protrain::draft
