// Element types and sizes, and Storage, which reads a tensor's values. ONNX puts the values in one of six fields of a
// tensor, or in an external file.
#include "onnx_import/tensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "base/sha1.h"
#include "base/text.h"
#include "onnx_import/byte_stream.h"

namespace protrain::onnx_import {

static_assert(std::endian::native == std::endian::little, "tensor data is copied as it lies in the file");

namespace {

constexpr std::int32_t kExternalLocation = 1;
constexpr std::int32_t kUint4 = 21, kInt4 = 22;
constexpr std::uint64_t kReadBytes = 1 << 20;       // bytes that a checksum reads at a time
constexpr std::uint64_t kMostSpare = 32 << 20;      // slack of the limit in check_sum()
constexpr std::uint64_t kSummedAtOnce = 256 << 20;  // loading a constant checks the sum of a file up to this size
constexpr std::size_t kMostFiles = 1 << 16;         // with external data
constexpr std::uint64_t kAlwaysLoaded = 64 << 20;   // constants up to this size are loaded even if memory is short

// ONNX's element types by number: our dtype (none: not supported), ONNX's name, and the typed field for values.
struct ElementType {
  DType dtype;
  std::string_view name;
  int field;
};
constexpr int kFloatData = 4, kInt32Data = 5, kStringData = 6, kInt64Data = 7, kRawData = 9, kDoubleData = 10,
              kUint64Data = 11;
constexpr std::array<ElementType, 29> kElementTypes{{{DType::none, "undefined", 0},
                                                     {DType::f32, "float", kFloatData},
                                                     {DType::u8, "uint8", kInt32Data},
                                                     {DType::i8, "int8", kInt32Data},
                                                     {DType::u16, "uint16", kInt32Data},
                                                     {DType::i16, "int16", kInt32Data},
                                                     {DType::i32, "int32", kInt32Data},
                                                     {DType::i64, "int64", kInt64Data},
                                                     {DType::none, "string", 0},
                                                     {DType::boolean, "bool", kInt32Data},
                                                     {DType::f16, "float16", kInt32Data},
                                                     {DType::f64, "double", kDoubleData},
                                                     {DType::u32, "uint32", kUint64Data},
                                                     {DType::u64, "uint64", kUint64Data},
                                                     {DType::none, "complex64", 0},
                                                     {DType::none, "complex128", 0},
                                                     {DType::bf16, "bfloat16", kInt32Data},
                                                     {DType::none, "float8e4m3fn", 0},
                                                     {DType::none, "float8e4m3fnuz", 0},
                                                     {DType::none, "float8e5m2", 0},
                                                     {DType::none, "float8e5m2fnuz", 0},
                                                     {DType::none, "uint4", kInt32Data},
                                                     {DType::none, "int4", kInt32Data},
                                                     {DType::none, "float4e2m1", 0},
                                                     {DType::none, "float8e8m0", 0},
                                                     {DType::none, "uint2", 0},
                                                     {DType::none, "int2", 0},
                                                     {DType::none, "float6e2m3", 0},
                                                     {DType::none, "float6e3m2", 0}}};

std::string_view field_name(int field) {
  switch (field) {
    case kFloatData:
      return "float_data";
    case kInt32Data:
      return "int32_data";
    case kStringData:
      return "string_data";
    case kInt64Data:
      return "int64_data";
    case kRawData:
      return "raw_data";
    case kDoubleData:
      return "double_data";
    default:
      return "uint64_data";
  }
}

Shape check_dims(const TensorProto &proto, DType dtype, const std::string &subject) {
  require(proto.dims_size() <= kMaxRank, Code::limit, subject, "rank {}; at most {} is allowed", proto.dims_size(),
          kMaxRank);
  Shape shape(proto.dims().begin(), proto.dims().end());
  auto bytes = static_cast<std::int64_t>(size_of(dtype));
  for (const std::int64_t dim : shape) {
    require(dim >= 0, Code::shape, subject, "shape {} has a negative dim", to_text(shape));
    require(!__builtin_mul_overflow(bytes, dim, &bytes), Code::shape, subject,
            "shape {}: its byte count overflows 64 bits", to_text(shape));
  }
  return shape;
}

// Returns the field that holds the values, or 0 if there is none. Code::format if there are several.
int data_field(const TensorProto &proto, const std::string &subject) {
  const std::array<std::pair<int, bool>, 7> present{{{kRawData, proto.has_raw_data()},
                                                     {kFloatData, proto.float_data_size() > 0},
                                                     {kInt32Data, proto.int32_data_size() > 0},
                                                     {kStringData, proto.string_data_size() > 0},
                                                     {kInt64Data, proto.int64_data_size() > 0},
                                                     {kDoubleData, proto.double_data_size() > 0},
                                                     {kUint64Data, proto.uint64_data_size() > 0}}};
  int found = proto.payload_field();
  for (const auto &[field, here] : present) {
    require(!here || found == 0, Code::format, subject, "{} and {} both set; a tensor has its values in one place",
            field_name(found), field_name(field));
    if (here) found = field;
  }
  return found;
}

int inline_count(const TensorProto &proto, int field) {
  switch (field) {
    case kFloatData:
      return proto.float_data_size();
    case kInt32Data:
      return proto.int32_data_size();
    case kInt64Data:
      return proto.int64_data_size();
    case kDoubleData:
      return proto.double_data_size();
    default:
      return proto.uint64_data_size();
  }
}

void check_inline(const Tensor &tensor, int field) {
  const TensorProto &proto = *tensor.proto;
  const std::uint64_t width = size_of(tensor.type.dtype);
  const bool varints = field == kInt32Data || field == kInt64Data || field == kUint64Data;
  if (proto.has_payload_field() && varints) {  // one to ten bytes each; they are counted when they are read
    require(proto.payload_bytes() >= tensor.bytes / width && proto.payload_bytes() / 10 <= tensor.bytes / width,
            Code::shape, tensor.subject, "shape {} does not match the {} bytes of {}", to_text(tensor.type.shape),
            proto.payload_bytes(), field_name(field));
    return;
  }
  std::uint64_t found = 0;
  if (proto.has_payload_field())
    found = proto.payload_bytes();
  else if (field == kRawData)
    found = proto.raw_data().size();
  else if (field != 0)
    found = width * static_cast<std::uint64_t>(inline_count(proto, field));
  require(found == tensor.bytes, Code::shape, tensor.subject, "{} of shape {}: expected {} bytes, got {}",
          name_of(tensor.type.dtype), to_text(tensor.type.shape), tensor.bytes, found);
}

// Converts integers from wider fields to the element type. float16 and bfloat16 are given as bit patterns.
class IntegerSink {
 public:
  IntegerSink(const Tensor &tensor, std::byte *out) : tensor_(tensor), out_(out), left_(tensor.bytes) {
    const bool half = tensor.type.dtype == DType::f16 || tensor.type.dtype == DType::bf16;
    dtype_ = half ? DType::u16 : tensor.four_bits ? DType::u8 : tensor.type.dtype;
    const auto bits = static_cast<int>(8 * size_of(dtype_));
    const bool is_signed = dtype_ == DType::i8 || dtype_ == DType::i16 || dtype_ == DType::i32 || dtype_ == DType::i64;
    if (dtype_ == DType::boolean)
      highest_ = 1;
    else if (bits < 64)
      highest_ = (std::int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
    lowest_ = is_signed ? -highest_ - 1 : 0;
    if (dtype_ == DType::u64) lowest_ = std::numeric_limits<std::int64_t>::min();  // large numbers arrive as negative
  }

  void put(std::int64_t value) {
    require(value >= lowest_ && value <= highest_, Code::format, tensor_.subject, "value {} is outside {}", value,
            name_of(tensor_.type.dtype));
    const std::size_t width = size_of(dtype_);
    require(left_ >= width, Code::shape, tensor_.subject, "holds more values than its shape {}",
            to_text(tensor_.type.shape));
    std::memcpy(out_, &value, width);
    out_ += width;
    left_ -= width;
  }
  void finish() const {
    require(left_ == 0, Code::shape, tensor_.subject, "holds fewer values than its shape {}",
            to_text(tensor_.type.shape));
  }

 private:
  const Tensor &tensor_;
  std::byte *out_;
  std::uint64_t left_;
  DType dtype_;
  std::int64_t lowest_ = 0;
  std::int64_t highest_ = std::numeric_limits<std::int64_t>::max();
};

void read_payload(const File &model, const Tensor &tensor, std::byte *out) {
  const TensorProto &proto = *tensor.proto;
  const int field = proto.payload_field();
  if (field == kRawData || field == kFloatData || field == kDoubleData)
    return model.read(proto.payload_offset(), std::span(out, tensor.bytes));
  ByteStream stream(model, proto.payload_offset());
  const std::uint64_t end = proto.payload_offset() + proto.payload_bytes();
  IntegerSink sink(tensor, out);
  while (stream.position() < end) {
    const std::uint64_t value = stream.varint(end);
    // Only the lower 32 bits of a value in an int32 field count, as in protobuf.
    sink.put(field == kInt32Data ? static_cast<std::int32_t>(value) : static_cast<std::int64_t>(value));
  }
  sink.finish();
}

// Returns the tensor's bytes inside the message. Returns nullptr if the message holds the values in one of its integer
// fields, from which they are converted one by one.
const void *inline_bytes(const Tensor &tensor) {
  const TensorProto &proto = *tensor.proto;
  if (proto.has_raw_data()) return proto.raw_data().data();
  if (tensor.type.dtype == DType::f32) return proto.float_data().data();
  if (tensor.type.dtype == DType::f64) return proto.double_data().data();
  return nullptr;
}

void read_inline(const Tensor &tensor, std::byte *out) {
  const TensorProto &proto = *tensor.proto;
  if (tensor.bytes == 0) return;
  if (const void *bytes = inline_bytes(tensor)) {
    std::memcpy(out, bytes, tensor.bytes);
  } else {
    IntegerSink sink(tensor, out);
    for (const std::int32_t value : proto.int32_data()) sink.put(value);
    for (const std::int64_t value : proto.int64_data()) sink.put(value);
    for (const std::uint64_t value : proto.uint64_data()) sink.put(static_cast<std::int64_t>(value));
  }
}

// Returns one byte for each element of four bits. A packed byte holds two elements, the first one in its lower half.
std::vector<std::byte> unpacked(const Tensor &tensor, const std::vector<std::byte> &packed) {
  require_room(byte_count(tensor.type.dtype, tensor.type.shape), tensor.subject);
  std::vector<std::byte> bytes(byte_count(tensor.type.dtype, tensor.type.shape));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const auto half = static_cast<std::uint8_t>(packed[i / 2] >> (i % 2 * 4) & std::byte{15});
    const bool negative = tensor.type.dtype == DType::i8 && half > 7;
    bytes[i] = static_cast<std::byte>(negative ? half - 16 : half);
  }
  return bytes;
}

void check_bools(const Tensor &tensor, const std::byte *values) {
  const bool plain = std::all_of(values, values + tensor.bytes, [](std::byte b) { return b <= std::byte{1}; });
  require(plain, Code::format, tensor.subject, "a bool is neither 0 nor 1");
}

}  // namespace

std::string_view onnx_type_name(std::int32_t onnx) {
  const bool known = onnx >= 0 && static_cast<std::size_t>(onnx) < kElementTypes.size();
  return known ? kElementTypes[static_cast<std::size_t>(onnx)].name : "unknown";
}

DType dtype_of(std::int32_t onnx, const std::string &subject) {
  const bool known = onnx >= 0 && static_cast<std::size_t>(onnx) < kElementTypes.size();
  const DType dtype = known ? kElementTypes[static_cast<std::size_t>(onnx)].dtype : DType::none;
  require(dtype != DType::none, Code::type, subject,
          "element type {} ({}) is not supported; use floats, integers of 8 to 64 bits or bool", onnx,
          onnx_type_name(onnx));
  return dtype;
}

bool has_four_bits(std::int32_t onnx) { return onnx == kUint4 || onnx == kInt4; }

DType stored_dtype_of(std::int32_t onnx, const std::string &subject) {
  if (!has_four_bits(onnx)) return dtype_of(onnx, subject);
  return onnx == kInt4 ? DType::i8 : DType::u8;
}

Tensor parse_tensor(const TensorProto &proto, const std::string &subject) {
  Tensor tensor;
  tensor.subject = subject;
  tensor.proto = &proto;
  tensor.type.dtype = stored_dtype_of(proto.data_type(), subject);
  tensor.type.shape = check_dims(proto, tensor.type.dtype, subject);
  tensor.bytes = byte_count(tensor.type.dtype, tensor.type.shape);
  tensor.four_bits = has_four_bits(proto.data_type());
  if (tensor.four_bits) tensor.bytes = tensor.bytes / 2 + tensor.bytes % 2;
  require(!proto.has_segment(), Code::format, subject, "tensor segments are not supported");
  const int field = data_field(proto, subject);
  if (proto.data_location() == kExternalLocation) {
    require(field == 0, Code::format, subject, "{} and external data both set", field_name(field));
    tensor.external = parse_external(proto, subject);
    require(tensor.external->length.value_or(tensor.bytes) == tensor.bytes, Code::shape, subject,
            "external data of {} bytes; {} of shape {} expected {}", tensor.external->length.value_or(0),
            name_of(tensor.type.dtype), to_text(tensor.type.shape), tensor.bytes);
    return tensor;
  }
  require(proto.data_location() == 0 && proto.external_data_size() == 0, Code::format, subject,
          "data_location {} with {} entries of external data", proto.data_location(), proto.external_data_size());
  const int typed = kElementTypes[static_cast<std::size_t>(proto.data_type())].field;
  require(field == 0 || field == kRawData || field == typed, Code::format, subject,
          "{} cannot hold {}; {} or raw_data can", field_name(field), name_of(tensor.type.dtype), field_name(typed));
  check_inline(tensor, field);
  if (field == kInt32Data && !proto.has_payload_field()) {  // small, so values out of range are found right away
    std::vector<std::byte> scratch(tensor.bytes);
    read_inline(tensor, scratch.data());
  }
  return tensor;
}

void require_room(std::uint64_t bytes, const std::string &subject) {
  require(bytes <= kAlwaysLoaded || bytes <= available_memory() / 2, Code::limit, subject,
          "constants of {} bytes, more than half of the memory that is left", bytes);
}

Storage::Storage(const ModelSource &source)
    : model_(source.bytes() ? File::in_memory(source.path(), source.bytes()) : File::open(source.path())) {
  check_unchanged(model_);
  if (!source.bytes()) {
    // Uses the directories of the given path and of its real path: download caches hold links to model and data files.
    roots_.push_back(directory_of(source.path()));
    roots_.push_back(directory_of(real_path(source.path()).value_or(source.path())));
  } else if (!source.directory().empty()) {
    roots_.push_back(source.directory());
  }
}

std::set<std::string> Storage::external_files(const GraphProto &graph) const {
  std::set<std::string> files;
  const auto add = [&](const TensorProto &proto) {
    if (proto.external_data_size() > 0 && !roots_.empty())
      files.insert(roots_.front() + "/" + parse_external(proto, model_.path()).location);
  };
  for (const TensorProto &proto : graph.initializer()) add(proto);
  for (const NodeProto &node : graph.node())
    for (const AttributeProto &attribute : node.attribute()) {
      if (attribute.has_t()) add(attribute.t());
      if (attribute.has_g()) files.merge(external_files(attribute.g()));
    }
  return files;
}

File Storage::open_data(const Tensor &tensor) const {
  File file = open_external(roots_, tensor.external->location, tensor.subject);
  require(file.identity() != model_.identity(), Code::path, tensor.subject,
          "external data \"{}\" is the model file itself", printable(tensor.external->location));
  check_range(tensor, file.size());
  return file;
}

void Storage::check_range(const Tensor &tensor, std::uint64_t size) const {
  const ExternalData &external = *tensor.external;
  require(external.offset <= size && tensor.bytes <= size - external.offset, Code::shape, tensor.subject,
          "external data range: {} bytes at {} of {}, which has {}", tensor.bytes, external.offset,
          printable(external.location), size);
  require(external.length || size - external.offset == tensor.bytes, Code::shape, tensor.subject,
          "external data range: {} bytes from {} to the end of {}, expected {}", size - external.offset,
          external.offset, printable(external.location), tensor.bytes);
}

// Returns the size of the tensor's external file, or an empty optional if the file cannot be opened. Planning needs no
// weights, so a missing file is an error only when weights are read.
std::optional<std::uint64_t> Storage::size_of_data(const Tensor &tensor) const {
  try {
    return open_data(tensor).size();
  } catch (const Error &error) {
    if (error.code != Code::io) throw;
    return std::nullopt;
  }
}

// If the tensor has a checksum, compares it with the SHA-1 of the tensor's file. Reads each file only once. Refuses a
// file that is far larger than all tensors together, because reading it would take long for nothing.
void Storage::check_sum(const Tensor &tensor, const File &file) const {
  const ExternalData &external = *tensor.external;
  if (external.checksum.empty()) return;
  require(file.size() / 2 <= external_bytes_ + kMostSpare, Code::limit, tensor.subject,
          "{} has {} bytes, far more than the {} of all tensors; its SHA-1 is not computed",
          printable(external.location), file.size(), external_bytes_);
  const std::lock_guard lock(summing_);
  std::string &sum = sums_[external.location];
  if (sum.empty()) {
    Sha1 sha1;
    std::vector<std::byte> buffer(kReadBytes);
    for (std::uint64_t at = 0; at < file.size(); at += buffer.size()) {
      buffer.resize(std::min<std::uint64_t>(kReadBytes, file.size() - at));
      file.read(at, buffer);
      sha1.add(buffer);
    }
    sum = sha1.hex();
  }
  require(sum == external.checksum, Code::corrupt, tensor.subject, "the SHA-1 of {} is {}, and the model says {}",
          printable(external.location), sum, external.checksum);
}

// Throws Code::mismatch if the file has changed since it was first read. Call this after each read, so that a change
// during the read is noticed too.
void Storage::check_unchanged(const File &file) const {
  const Version now{file.identity(), file.modified()};
  const std::lock_guard lock(noting_);
  require(versions_.try_emplace(file.path(), now).first->second == now, Code::mismatch, file.path(),
          "the file was changed after it was read, so its weights may be others; put the former file back and create "
          "the session again, from a checkpoint if it has trained");
}

void Storage::read(const Tensor &tensor, std::byte *out) const {
  if (tensor.external) check_sum(tensor, open_data(tensor));
  copy(tensor, out);
}

void Storage::copy(const Tensor &tensor, std::byte *out) const {
  if (tensor.external) {
    const File file = open_data(tensor);
    file.read(tensor.external->offset, std::span(out, tensor.bytes));
    check_unchanged(file);
  } else if (tensor.proto->has_payload_field()) {
    read_payload(model_, tensor, out);
    check_unchanged(model_);
  } else {
    read_inline(tensor, out);
  }
  if (tensor.type.dtype == DType::boolean) check_bools(tensor, out);
}

void Storage::read_part(const Tensor &tensor, std::uint64_t offset, std::span<std::byte> out) const {
  require(offset <= tensor.bytes && out.size() <= tensor.bytes - offset, Code::internal, tensor.subject,
          "bytes {} to {} of {}", offset, offset + out.size(), to_text(tensor.type));
  if (out.empty()) return;
  const bool in_words = tensor.proto->payload_field() == kInt32Data || tensor.proto->int32_data_size() > 0;
  if (in_words) {
    std::vector<std::byte> bytes(tensor.bytes);
    copy(tensor, bytes.data());
    std::memcpy(out.data(), bytes.data() + offset, out.size());
  } else if (tensor.external) {
    const File file = open_data(tensor);
    check_sum(tensor, file);
    file.read(tensor.external->offset + offset, out);
    check_unchanged(file);
  } else if (tensor.proto->has_payload_field()) {
    model_.read(tensor.proto->payload_offset() + offset, out);
    check_unchanged(model_);
  } else {
    std::memcpy(out.data(), static_cast<const std::byte *>(inline_bytes(tensor)) + offset, out.size());
  }
}

std::vector<std::byte> Storage::load_bytes(const Tensor &tensor) const {
  if (tensor.external) {
    const File file = open_data(tensor);
    if (file.size() <= kSummedAtOnce)
      check_sum(tensor, file);  // larger files are checked later, once there is room for their weights
  }
  require_room(tensor.bytes, tensor.subject);
  std::vector<std::byte> bytes(tensor.bytes);
  copy(tensor, bytes.data());
  return bytes;
}

graph::Array Storage::load(const Tensor &tensor) const {
  std::vector<std::byte> bytes = load_bytes(tensor);
  if (tensor.four_bits) bytes = unpacked(tensor, bytes);
  return graph::Array::dense(tensor.type, std::move(bytes));
}

graph::Array Storage::load_packed(const Tensor &tensor) const {
  return graph::Array::dense({DType::u8, {static_cast<std::int64_t>(tensor.bytes)}}, load_bytes(tensor));
}

void Storage::check_ranges(const std::map<std::string, Tensor> &tensors) const {
  std::vector<std::tuple<std::string, std::uint64_t, std::uint64_t, const Tensor *>> ranges;
  std::map<std::string, std::optional<std::uint64_t>> sizes;  // by location; nothing if the file could not be opened
  for (const auto &[name, tensor] : tensors) {
    if (!tensor.external) continue;
    const ExternalData &external = *tensor.external;
    std::uint64_t end = 0;
    require(!__builtin_add_overflow(external.offset, tensor.bytes, &end), Code::shape, tensor.subject,
            "external data range: {} bytes at {} end beyond 64 bits", tensor.bytes, external.offset);
    external_bytes_ += tensor.bytes;
    if (tensor.bytes > 0) ranges.emplace_back(external.location, external.offset, end, &tensor);
    const auto [size, fresh] = sizes.emplace(external.location, std::nullopt);
    require(sizes.size() <= kMostFiles, Code::limit, model_.path(), "external data in more than {} files", kMostFiles);
    if (fresh)
      size->second = size_of_data(tensor);
    else if (size->second)
      check_range(tensor, *size->second);
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    const auto &[location, begin, end, tensor] = ranges[i - 1];
    const auto &[next_location, next_begin, next_end, next] = ranges[i];
    const bool same = begin == next_begin && end == next_end;  // tied weights share a range
    require(location != next_location || same || next_begin >= end, Code::format, next->subject,
            "external data range {}..{} of {} lies partly over that of {}", next_begin, next_end, printable(location),
            tensor->subject);
  }
}

}  // namespace protrain::onnx_import
