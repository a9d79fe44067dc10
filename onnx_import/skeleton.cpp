// The walker over protobuf's wire format: a table of the fields that matter, and a loop over the fields of a message.
#include "onnx_import/skeleton.h"

#include <array>

#include "base/error.h"
#include "onnx_import/byte_stream.h"
#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

namespace {

enum class Message : std::uint8_t {
  model,
  graph,
  node,
  attribute,
  tensor,
  sparse,
  value,
  note,
  type,
  tensor_type,
  shape,
  training,
  function
};

// The treatment of a length-delimited field.
enum class Rule : std::uint8_t {
  bytes,    // copied: strings and all fields not listed
  numbers,  // copied: packed numbers; parsing may turn one byte into eight, in a list that doubles when full
  leaf,     // copied: a message without inner messages
  walk,     // a message walked field by field
  drop,     // walked, then left empty: only its presence matters
  payload,  // tensor data: left in the file if large
  varints,  // tensor data that are also packed numbers
};

struct Field {
  Message in;
  std::uint32_t number;
  Rule rule;
  Message child;         // for walk and drop
  std::uint64_t memory;  // bytes of one such message once parsed, without its strings and lists
  bool single;           // may occur only once; protobuf would merge two
  const char *name;
};

// The memory that a parsed list takes for one number, and for one string without its text, in bytes. Lists lie in
// protobuf's arena, which does not free the old copy when a list grows. All old copies of a list together take as much
// as its last copy.
constexpr std::uint64_t kNumberMemory = 32, kStringMemory = 80;

// Bytes of one parsed object: itself, the allocation's overhead, its unknown fields, and the pointer to it.
template <typename T>
constexpr std::uint64_t kMemory = sizeof(T) + 80;
constexpr auto kNone = Message::model;

constexpr std::array kFields{
    Field{Message::model, 7, Rule::walk, Message::graph, kMemory<GraphProto>, true, "graph"},
    Field{Message::model, 8, Rule::leaf, kNone, kMemory<OpsetImport>, false, "opset_import"},
    Field{Message::model, 14, Rule::leaf, kNone, kMemory<StringPair>, false, "metadata_props"},
    Field{Message::model, 20, Rule::walk, Message::training, kMemory<TrainingInfo>, false, "training_info"},
    Field{Message::model, 25, Rule::walk, Message::function, kMemory<FunctionProto>, false, "functions"},
    Field{Message::graph, 1, Rule::walk, Message::node, kMemory<NodeProto>, false, "node"},
    Field{Message::graph, 5, Rule::walk, Message::tensor, kMemory<TensorProto>, false, "initializer"},
    Field{Message::graph, 11, Rule::walk, Message::value, kMemory<ValueInfo>, false, "input"},
    Field{Message::graph, 12, Rule::walk, Message::value, kMemory<ValueInfo>, false, "output"},
    Field{Message::graph, 13, Rule::walk, Message::note, kMemory<ValueNote>, false, "value_info"},
    Field{Message::graph, 15, Rule::walk, Message::sparse, kMemory<SparseTensorProto>, false, "sparse_initializer"},
    Field{Message::graph, 16, Rule::leaf, kNone, kMemory<StringPair>, false, "metadata_props"},
    Field{Message::node, 5, Rule::walk, Message::attribute, kMemory<AttributeProto>, false, "attribute"},
    Field{Message::node, 9, Rule::leaf, kNone, kMemory<StringPair>, false, "metadata_props"},
    Field{Message::attribute, 5, Rule::walk, Message::tensor, kMemory<TensorProto>, true, "t"},
    Field{Message::attribute, 6, Rule::walk, Message::graph, kMemory<GraphProto>, true, "g"},
    Field{Message::attribute, 7, Rule::numbers, kNone, 0, false, "floats"},
    Field{Message::attribute, 8, Rule::numbers, kNone, 0, false, "ints"},
    Field{Message::attribute, 10, Rule::drop, Message::tensor, 40, false, "tensors"},
    Field{Message::attribute, 11, Rule::drop, Message::graph, 40, false, "graphs"},
    Field{Message::attribute, 22, Rule::walk, Message::sparse, kMemory<SparseTensorProto>, true, "sparse_tensor"},
    Field{Message::attribute, 23, Rule::drop, Message::sparse, 40, false, "sparse_tensors"},
    Field{Message::tensor, 1, Rule::numbers, kNone, 0, false, "dims"},
    Field{Message::tensor, 4, Rule::payload, kNone, 0, true, "float_data"},
    Field{Message::tensor, 5, Rule::varints, kNone, 0, true, "int32_data"},
    Field{Message::tensor, 7, Rule::varints, kNone, 0, true, "int64_data"},
    Field{Message::tensor, 9, Rule::payload, kNone, 0, true, "raw_data"},
    Field{Message::tensor, 10, Rule::payload, kNone, 0, true, "double_data"},
    Field{Message::tensor, 11, Rule::varints, kNone, 0, true, "uint64_data"},
    Field{Message::tensor, 13, Rule::leaf, kNone, kMemory<StringPair>, false, "external_data"},
    Field{Message::sparse, 1, Rule::walk, Message::tensor, kMemory<TensorProto>, true, "values"},
    Field{Message::sparse, 2, Rule::walk, Message::tensor, kMemory<TensorProto>, true, "indices"},
    Field{Message::sparse, 3, Rule::numbers, kNone, 0, false, "dims"},
    Field{Message::value, 2, Rule::walk, Message::type, kMemory<TypeProto>, true, "type"},
    Field{Message::note, 4, Rule::leaf, kNone, kMemory<StringPair>, false, "metadata_props"},
    Field{Message::type, 1, Rule::walk, Message::tensor_type, kMemory<TensorType>, true, "tensor_type"},
    Field{Message::tensor_type, 2, Rule::walk, Message::shape, kMemory<TensorShape>, true, "shape"},
    Field{Message::shape, 1, Rule::leaf, kNone, kMemory<Dimension>, false, "dim"},
    Field{Message::training, 1, Rule::drop, Message::graph, 40, true, "initialization"},
    Field{Message::training, 2, Rule::walk, Message::graph, kMemory<GraphProto>, true, "algorithm"},
    Field{Message::training, 3, Rule::leaf, kNone, kMemory<StringPair>, false, "initialization_binding"},
    Field{Message::training, 4, Rule::leaf, kNone, kMemory<StringPair>, false, "update_binding"},
    Field{Message::function, 7, Rule::walk, Message::node, kMemory<NodeProto>, false, "node"},
    Field{Message::function, 9, Rule::leaf, kNone, kMemory<OpsetImport>, false, "opset_import"},
    Field{Message::function, 11, Rule::walk, Message::attribute, kMemory<AttributeProto>, false, "attribute_proto"},
};

const Field *find_field(Message in, std::uint64_t number) {
  for (const Field &field : kFields)
    if (field.in == in && field.number == number) return &field;
  return nullptr;
}

enum Wire : std::uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kGroup = 3, kGroupEnd = 4, kFixed32 = 5 };
constexpr std::uint64_t kMaxFieldNumber = (1u << 29) - 1;

class Walker {
 public:
  explicit Walker(const File &file) : stream_(file) {}

  std::string take() {
    walk(Message::model, stream_.file().size(), 0);
    return std::move(out_);
  }

 private:
  void walk(Message kind, std::uint64_t end, int depth);
  void length_delimited(const Field *field, std::uint64_t tag, std::uint64_t end, int depth);
  void child(const Field &field, std::uint64_t tag, std::uint64_t end, int depth);
  void group(std::uint64_t number, std::uint64_t end);
  void scalar(std::uint64_t wire, std::uint64_t end);
  void put(std::uint64_t value);
  void keep(std::uint64_t count);
  void charge(std::uint64_t memory);
  std::uint64_t within(std::uint64_t count, std::uint64_t end);

  ByteStream stream_;
  std::string out_;
  std::uint64_t memory_ = 0;  // bytes that the parsed skeleton will take
  int dropping_ = 0;          // depth of enclosing parts that are left empty
};

void Walker::put(std::uint64_t value) {
  if (dropping_ > 0) return;
  for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<char>(value | 0x80));
  out_.push_back(static_cast<char>(value));
}

void Walker::keep(std::uint64_t count) {
  if (dropping_ > 0) return stream_.skip(count);
  require(out_.size() + count <= kMaxSkeletonBytes, Code::limit, stream_.file().path(),
          "holds more than {} MiB beside its tensors; strip texts such as doc_string", kMaxSkeletonBytes >> 20);
  stream_.copy(count, out_);
}

void Walker::charge(std::uint64_t memory) {
  if (dropping_ > 0) return;
  memory_ += memory;
  require(memory_ <= kParseBytes + kParseBytesPerByte * out_.size() && out_.size() <= kMaxSkeletonBytes, Code::limit,
          stream_.file().path(),
          "object count: its parts would take {} MiB once parsed, far more than their {} bytes say", memory_ >> 20,
          out_.size());
}

// Checks that the next `count` bytes lie inside the message, which ends at `end`. Returns `count`.
std::uint64_t Walker::within(std::uint64_t count, std::uint64_t end) {
  if (count <= end - stream_.position()) return count;
  if (count > stream_.file().size() - stream_.position() && count <= kMaxFileBytes) fail_truncated(stream_.file());
  fail_malformed(stream_.file(), stream_.position(), fmt::format("a field of {} bytes in a smaller message", count));
}

void Walker::scalar(std::uint64_t wire, std::uint64_t end) {
  charge(kNumberMemory);
  if (wire == kVarint) return put(stream_.varint(end));
  keep(within(wire == kFixed64 ? 8 : 4, end));
}

// Copies a group, which is always an unknown field. protobuf recurses on groups, so their depth is limited here.
void Walker::group(std::uint64_t number, std::uint64_t end) {
  std::array<std::uint64_t, kMaxGroupDepth> open{number};
  for (std::size_t depth = 1; depth > 0;) {
    const std::uint64_t at = stream_.position();
    const std::uint64_t tag = stream_.varint(end);
    put(tag);
    switch (tag & 7) {
      case kGroup:
        require(depth < open.size(), Code::limit, stream_.file().path(), "nesting of groups deeper than {} at byte {}",
                kMaxGroupDepth, at);
        charge(64);
        open[depth++] = tag >> 3;
        break;
      case kGroupEnd:
        if (open[--depth] != tag >> 3) fail_malformed(stream_.file(), at, "the end of a group that is not open");
        break;
      case kVarint:
      case kFixed64:
      case kFixed32:
        scalar(tag & 7, end);
        break;
      case kBytes: {
        const std::uint64_t count = within(stream_.varint(end), end);
        put(count);
        charge(2 * count);
        keep(count);
        break;
      }
      default:
        fail_malformed(stream_.file(), at, fmt::format("wire type {}", tag & 7));
    }
  }
}

// Walks an inner message and copies it. The length of the copy stands before the copy, but is known only when the copy
// is complete. So five bytes are reserved for the length, and are filled in at the end.
void Walker::child(const Field &field, std::uint64_t tag, std::uint64_t end, int depth) {
  constexpr std::size_t kLengthBytes = 5;
  const bool subgraph = field.in == Message::attribute && field.child == Message::graph;
  require(!subgraph || depth < kMaxSubgraphDepth, Code::limit, stream_.file().path(), "subgraph depth {} exceeded",
          kMaxSubgraphDepth);
  charge(field.memory);
  put(tag);
  const bool drop = field.rule == Rule::drop;
  if (drop) put(0);
  dropping_ += drop ? 1 : 0;
  const std::size_t length_at = out_.size();
  if (dropping_ == 0) out_.append(kLengthBytes, '\0');
  walk(field.child, end, depth + (subgraph ? 1 : 0));
  if (dropping_ == 0) {
    std::uint64_t length = out_.size() - length_at - kLengthBytes;
    for (std::size_t i = 0; i < kLengthBytes; ++i, length >>= 7)
      out_[length_at + i] = static_cast<char>((length & 0x7f) | (i + 1 < kLengthBytes ? 0x80 : 0));
  }
  dropping_ -= drop ? 1 : 0;
}

void Walker::length_delimited(const Field *field, std::uint64_t tag, std::uint64_t end, int depth) {
  const std::uint64_t count = within(stream_.varint(end), end);
  const Rule rule = field != nullptr ? field->rule : Rule::bytes;
  if (rule == Rule::walk || rule == Rule::drop) return child(*field, tag, stream_.position() + count, depth);
  if ((rule == Rule::payload || rule == Rule::varints) && count > kPayloadBytes) {
    const auto mark = [&](int number, std::uint64_t value) {
      put(static_cast<std::uint64_t>(number) << 3 | kVarint);
      put(value);
    };
    mark(TensorProto::kPayloadOffsetFieldNumber, stream_.position());
    mark(TensorProto::kPayloadBytesFieldNumber, count);
    mark(TensorProto::kPayloadFieldFieldNumber, field->number);
    return stream_.skip(count);
  }
  put(tag);
  put(count);
  keep(count);
  if (rule == Rule::leaf)
    charge(field->memory + 2 * count);
  else if (rule == Rule::numbers || rule == Rule::varints)
    charge(kNumberMemory * count);
  else
    charge(kStringMemory + 2 * count);
}

void Walker::walk(Message kind, std::uint64_t end, int depth) {
  std::uint32_t seen = 0;  // a bit for each field met that may occur only once
  while (stream_.position() < end) {
    const std::uint64_t at = stream_.position();
    const std::uint64_t tag = stream_.varint(end);
    const std::uint64_t number = tag >> 3;
    const std::uint64_t wire = tag & 7;
    if (number == 0 || number > kMaxFieldNumber) fail_malformed(stream_.file(), at, fmt::format("field {}", number));
    const bool ours = kind == Message::tensor && number >= TensorProto::kPayloadOffsetFieldNumber &&
                      number <= TensorProto::kPayloadFieldFieldNumber;
    if (ours) fail_malformed(stream_.file(), at, fmt::format("field {}, which no file may use,", number));
    const Field *field = find_field(kind, number);
    if (field != nullptr && wire == kBytes && field->single) {
      if ((seen >> number & 1) != 0) fail_malformed(stream_.file(), at, fmt::format("{} given twice", field->name));
      seen |= 1u << number;
    }
    if (wire == kBytes) {
      length_delimited(field, tag, end, depth);
    } else if (field != nullptr && field->rule != Rule::numbers && field->rule != Rule::payload &&
               field->rule != Rule::varints) {
      fail_malformed(stream_.file(), at, fmt::format("wire type {} for {}", wire, field->name));
    } else if (wire == kVarint || wire == kFixed64 || wire == kFixed32) {
      put(tag);
      scalar(wire, end);
    } else if (wire == kGroup) {
      charge(64);
      put(tag);
      group(number, end);
    } else {
      fail_malformed(stream_.file(), at, fmt::format("wire type {}", wire));
    }
  }
}

}  // namespace

std::string read_skeleton(const File &file) {
  require(file.size() <= kMaxFileBytes, Code::limit, file.path(),
          "{} bytes, and protobuf allows no more than 2 GiB; use external data for the weights", file.size());
  return Walker(file).take();
}

}  // namespace protrain::onnx_import
