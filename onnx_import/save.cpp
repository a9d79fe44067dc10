// Writes a model in parts, because a message with large tensors may not fit in memory when it is serialized. The parts
// are serialized bytes, and tensors, which are fetched one at a time. All lengths are known beforehand, so one pass
// over the weights is enough.
#include "onnx_import/save.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "onnx_import/messages.h"
#include "onnx_import/scope.h"
#include "onnx_import/skeleton.h"

namespace protrain::onnx_import {

namespace {

constexpr std::uint64_t kAlignment = 4096;  // of external tensors: mmap and O_DIRECT need it

// A serialized message with gaps for tensors.
class MessageParts {
 public:
  std::uint64_t size() const { return size_; }

  void append(const std::string &bytes) {
    if (parts_.empty() || parts_.back().tensor != nullptr) parts_.push_back({});
    parts_.back().bytes += bytes;
    size_ += bytes.size();
  }
  // Appends a gap for a tensor. `bytes` is the number of bytes that will be written into it.
  void append(const Tensor &tensor, std::uint64_t bytes) {
    parts_.push_back({{}, &tensor});
    size_ += bytes;
  }
  // Appends `message` as field `number` of the message being written.
  void append(int number, MessageParts message) {
    append(header(number, message.size_));
    for (Part &part : message.parts_) parts_.push_back(std::move(part));
    size_ += message.size_;
  }

  template <typename WriteBytes, typename WriteTensor>
  void write(const WriteBytes &write_bytes, const WriteTensor &write_tensor) const {
    for (const Part &part : parts_) part.tensor != nullptr ? write_tensor(*part.tensor) : write_bytes(part.bytes);
  }

  static std::string header(int number, std::uint64_t length) {
    std::string out;
    for (std::uint64_t value : {static_cast<std::uint64_t>(number) << 3 | 2, length}) {
      for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
      out.push_back(static_cast<char>(value));
    }
    return out;
  }

 private:
  struct Part {
    std::string bytes;
    const Tensor *tensor = nullptr;
  };
  std::vector<Part> parts_;
  std::uint64_t size_ = 0;
};

// Returns a copy of the tensor without values, and without a location of values.
TensorProto &without_values(const TensorProto &proto, Messages &messages) {
  TensorProto &out = messages.copy(proto);
  out.clear_raw_data();
  out.clear_float_data();
  out.clear_int32_data();
  out.clear_int64_data();
  out.clear_double_data();
  out.clear_uint64_data();
  out.clear_external_data();
  out.clear_data_location();
  out.clear_payload_offset();
  out.clear_payload_bytes();
  out.clear_payload_field();
  return out;
}

MessageParts as_parts(const std::string &bytes) {
  MessageParts out;
  out.append(bytes);
  return out;
}

// True if an attribute of the node holds a tensor (as in a Constant) or a body.
bool has_parts(const NodeProto &node) {
  return std::ranges::any_of(node.attribute(),
                             [](const AttributeProto &attribute) { return attribute.has_t() || attribute.has_g(); });
}

// Writes one model out with new weights. First decides the form of each tensor: inline, in the second file, or
// unchanged. Then writes the files in one pass, and fetches one tensor at a time. Both files are complete before either
// gets its final name, so that a failed write leaves no new file beside an old one.
class ModelWriter {
 public:
  ModelWriter(const OriginalModel &original, const std::string &path, const Model::Weights &weights)
      : original_(original), path_(path), data_path_(path + ".data"), weights_(weights) {}

  void run(std::uint64_t inline_bytes) {
    std::uint64_t bytes = original_.proto.ByteSizeLong();
    for (const auto &[name, tensor] : original_.initializers) {
      bytes = checked_add(bytes, written_bytes(tensor));
      external_ = external_ || (tensor.external.has_value() && !original_.in_checkpoint);
    }
    external_ = external_ || bytes > inline_bytes;
    const MessageParts model = model_parts();
    require(model.size() <= kMaxFileBytes, Code::limit, path_,
            "its constants alone take {} bytes; a model file holds 2 GiB", model.size());
    FileWriter file(path_);
    std::optional<FileWriter> data;
    if (external_) write_data(data.emplace(data_path_));
    write_model(model, file);
    if (data) data->commit();  // before the model, which must not name a missing file
    file.commit();
  }

 private:
  MessageParts model_parts();
  MessageParts tensor_parts(const Tensor &tensor);
  MessageParts external_parts(const Tensor &tensor);
  MessageParts stored_parts(const TensorProto &proto);
  MessageParts node_parts(const NodeProto &node);
  MessageParts graph_parts(const GraphProto &graph);
  bool names_replaced_type(const AttributeProto &attribute) const;
  void retype_values(GraphProto &graph) const;
  void write_data(FileWriter &file) const;
  void write_model(const MessageParts &model, FileWriter &file) const;
  void write_tensor(FileWriter &file, const Tensor &tensor) const;
  bool fetch(const Tensor &tensor, std::byte *out) const;
  void read(const Tensor &tensor, std::byte *out) const;
  TensorProto &head_of(const Tensor &tensor);
  DType written(DType in_file) const { return original_.as_computed ? original_.floats.computed(in_file) : in_file; }
  std::uint64_t written_bytes(const Tensor &tensor) const {
    const DType to = written(tensor.type.dtype);
    return to == tensor.type.dtype ? tensor.bytes : byte_count(to, tensor.type.shape);
  }

  const OriginalModel &original_;
  const std::string path_;
  const std::string data_path_;
  const Model::Weights &weights_;
  Messages messages_;
  bool external_ = false;
  std::uint64_t data_bytes_ = 0;               // size of the second file so far
  std::vector<const Tensor *> data_;           // in the order of the second file
  std::vector<std::unique_ptr<Tensor>> held_;  // tensors of Constant nodes
};

constexpr std::int32_t kFloat32Number = 1;  // ONNX's number of float32, the only type that replaces others

// Puts an initializer's new values into `out`, in the type that the saved file has for them. Returns false if there are
// no new values.
bool ModelWriter::fetch(const Tensor &tensor, std::byte *out) const {
  const DType to = written(tensor.type.dtype), computed = original_.floats.computed(tensor.type.dtype);
  if (!is_float(to)) return false;
  if (to == computed) return weights_(tensor.proto->name(), out);
  const std::int64_t count = element_count(tensor.type.shape);
  const auto bytes = std::make_unique_for_overwrite<std::byte[]>(byte_count(computed, tensor.type.shape));
  if (!weights_(tensor.proto->name(), bytes.get())) return false;
  convert_floats(computed, bytes.get(), count, to, out);
  return true;
}

// Puts the values that the original file holds into `out`, in the type that the saved file has for them.
void ModelWriter::read(const Tensor &tensor, std::byte *out) const {
  const DType in_file = tensor.type.dtype, to = written(in_file);
  if (to == in_file) return original_.storage.read(tensor, out);
  const auto bytes = std::make_unique_for_overwrite<std::byte[]>(tensor.bytes);
  original_.storage.read(tensor, bytes.get());
  convert_floats(in_file, bytes.get(), element_count(tensor.type.shape), to, out);
}

// Returns the tensor's message without values, with the type that the saved file has for the tensor.
TensorProto &ModelWriter::head_of(const Tensor &tensor) {
  TensorProto &head = without_values(*tensor.proto, messages_);
  if (written(tensor.type.dtype) != tensor.type.dtype) head.set_data_type(kFloat32Number);
  return head;
}

// Returns the parts of an initializer. A small initializer stays as it is, byte for byte, if its values lie in the
// model file, are not trained and keep their type.
MessageParts ModelWriter::tensor_parts(const Tensor &tensor) {
  const TensorProto &proto = *tensor.proto;
  const std::uint64_t size = written_bytes(tensor);
  const bool large = size > kPayloadBytes;
  if (large && external_) return external_parts(tensor);
  TensorProto &head = head_of(tensor);
  MessageParts out;
  if (large) {
    out.append(head.SerializeAsString());
    out.append(MessageParts::header(TensorProto::kRawDataFieldNumber, size));
    out.append(tensor, size);
    return out;
  }
  std::string values(size, '\0');
  const auto bytes = reinterpret_cast<std::byte *>(values.data());
  const bool trained = fetch(tensor, bytes), retyped = written(tensor.type.dtype) != tensor.type.dtype;
  if (!trained && !retyped && !tensor.external && !proto.has_payload_field())
    return as_parts(proto.SerializeAsString());
  if (!trained) read(tensor, bytes);
  head.set_raw_data(std::move(values));
  return as_parts(head.SerializeAsString());
}

MessageParts ModelWriter::external_parts(const Tensor &tensor) {
  data_bytes_ = round_up(data_bytes_, kAlignment);
  TensorProto &head = head_of(tensor);
  const std::uint64_t size = written_bytes(tensor);
  const auto add = [&](const char *key, const std::string &value) {
    StringPair *entry = head.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", base_name(data_path_));
  add("offset", std::to_string(data_bytes_));
  add("length", std::to_string(size));
  head.set_data_location(1);
  parse_tensor(head, path_);  // fails if the second file's name would be refused when the model is read
  data_.push_back(&tensor);
  data_bytes_ = checked_add(data_bytes_, size);
  return as_parts(head.SerializeAsString());
}

// Returns the parts of a tensor that is no weight, such as the value of a Constant. The values always go to the model
// file.
MessageParts ModelWriter::stored_parts(const TensorProto &proto) {
  if (!proto.has_payload_field() && proto.data_location() == 0 && !original_.as_computed)
    return as_parts(proto.SerializeAsString());
  held_.push_back(std::make_unique<Tensor>(parse_tensor(proto, proto.name())));
  const std::uint64_t size = written_bytes(*held_.back());
  MessageParts tensor;
  tensor.append(head_of(*held_.back()).SerializeAsString());
  tensor.append(MessageParts::header(TensorProto::kRawDataFieldNumber, size));
  tensor.append(*held_.back(), size);
  return tensor;
}

// True if the attribute names an element type, as `to` of Cast does, and the saved file must name float32 instead.
bool ModelWriter::names_replaced_type(const AttributeProto &attribute) const {
  const bool is_type =
      one_of(attribute.name(), {"to", "dtype", "output_dtype", "output_datatype"}) && attribute.has_i();
  if (!original_.as_computed || !is_type || attribute.i() == 0) return false;  // 0: the scale's type
  const DType dtype = stored_dtype_of(static_cast<std::int32_t>(attribute.i()), attribute.name());
  return written(dtype) != dtype;
}

void ModelWriter::retype_values(GraphProto &graph) const {
  if (!original_.as_computed) return;
  graph.clear_value_info();  // inner values have other types now
  for (auto *values : {graph.mutable_input(), graph.mutable_output()})
    for (ValueInfo &value : *values) {
      if (value.type().tensor_type().elem_type() == 0) continue;
      const DType dtype = stored_dtype_of(value.type().tensor_type().elem_type(), value.name());
      if (written(dtype) != dtype) value.mutable_type()->mutable_tensor_type()->set_elem_type(kFloat32Number);
    }
}

MessageParts ModelWriter::node_parts(const NodeProto &node) {
  if (!has_parts(node) && !original_.as_computed) return as_parts(node.SerializeAsString());
  NodeProto &rest = messages_.copy(node);
  rest.clear_attribute();
  MessageParts out = as_parts(rest.SerializeAsString());
  for (const AttributeProto &proto : node.attribute()) {
    AttributeProto &attribute = messages_.copy(proto);
    attribute.clear_t();
    attribute.clear_g();
    if (names_replaced_type(proto)) attribute.set_i(kFloat32Number);
    MessageParts value = as_parts(attribute.SerializeAsString());
    if (proto.has_t()) value.append(AttributeProto::kTFieldNumber, stored_parts(proto.t()));
    if (proto.has_g()) value.append(AttributeProto::kGFieldNumber, graph_parts(proto.g()));
    out.append(NodeProto::kAttributeFieldNumber, std::move(value));
  }
  return out;
}

// Returns the parts of the main graph or of a body. Only the main graph has weights.
MessageParts ModelWriter::graph_parts(const GraphProto &graph) {
  const bool is_main = &graph == &original_.proto.graph();
  GraphProto &rest = messages_.copy(graph);
  rest.clear_node();
  rest.clear_initializer();
  retype_values(rest);
  MessageParts out = as_parts(rest.SerializeAsString());
  for (const NodeProto &node : graph.node()) out.append(GraphProto::kNodeFieldNumber, node_parts(node));
  for (const TensorProto &proto : graph.initializer())
    out.append(GraphProto::kInitializerFieldNumber,
               is_main ? tensor_parts(original_.initializers.at(proto.name())) : stored_parts(proto));
  return out;
}

MessageParts ModelWriter::model_parts() {
  ModelProto &rest = messages_.copy(original_.proto);
  rest.clear_training_info();  // its graphs were not read, and its state belongs to another training
  rest.clear_graph();
  MessageParts model = as_parts(rest.SerializeAsString());
  model.append(ModelProto::kGraphFieldNumber, graph_parts(original_.proto.graph()));
  return model;
}

void ModelWriter::write_tensor(FileWriter &file, const Tensor &tensor) const {
  const std::uint64_t size = written_bytes(tensor);
  const auto bytes = std::make_unique_for_overwrite<std::byte[]>(size);
  const bool weight = original_.initializers.contains(tensor.proto->name()) &&
                      original_.initializers.at(tensor.proto->name()).proto == tensor.proto;
  if (!weight || !fetch(tensor, bytes.get())) read(tensor, bytes.get());
  file.write(std::span<const std::byte>(bytes.get(), size));
}

void ModelWriter::write_data(FileWriter &file) const {
  for (const Tensor *tensor : data_) {
    file.pad_to(kAlignment);
    write_tensor(file, *tensor);
  }
}

void ModelWriter::write_model(const MessageParts &model, FileWriter &file) const {
  model.write([&](const std::string &bytes) { file.write(bytes); },
              [&](const Tensor &tensor) { write_tensor(file, tensor); });
}

}  // namespace

void save_model(const OriginalModel &original, const std::string &path, const Model::Weights &weights,
                std::uint64_t inline_bytes) {
  ModelWriter(original, path, weights).run(inline_bytes);
}

}  // namespace protrain::onnx_import
