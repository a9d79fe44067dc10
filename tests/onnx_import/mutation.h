// Changes a few random bytes or fields of a model. Most results are still well-formed protobuf, and some are legal
// models.
#pragma once

#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>

#include "onnx_import/model.pb.h"

namespace protrain::test {

class Mutation {
  using AttributeProto = onnx_import::AttributeProto;
  using GraphProto = onnx_import::GraphProto;
  using ModelProto = onnx_import::ModelProto;
  using NodeProto = onnx_import::NodeProto;
  using TensorProto = onnx_import::TensorProto;

 public:
  explicit Mutation(std::uint32_t seed) : random_(seed) {}

  std::size_t below(std::size_t count) {
    return count == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }
  template <typename Repeated>
  auto any(Repeated *list) {  // must not be empty
    return list->Mutable(static_cast<int>(below(static_cast<std::size_t>(list->size()))));
  }

  // Makes one to four changes, either to bytes, which may break the wire format, or to the contents of messages.
  std::string of(const std::string &model) {
    if (below(4) != 0) return of_messages(model);
    std::string bytes = model;
    for (std::size_t n = 1 + below(4); n > 0; --n) bytes[below(bytes.size())] = static_cast<char>(below(256));
    return bytes;
  }

  // Makes one to four changes to the contents of messages.
  std::string of_messages(const std::string &model) {
    ModelProto proto;
    if (!proto.ParseFromString(model)) throw std::runtime_error("a model that does not parse");
    for (std::size_t n = 1 + below(4); n > 0; --n) change(proto);
    return proto.SerializeAsString();
  }

  void change(ModelProto &proto) {
    if (below(32) == 0 && proto.opset_import_size() > 0)
      any(proto.mutable_opset_import())->set_version(static_cast<std::int64_t>(13 + below(12)));
    else if (proto.functions_size() > 0 && below(2) == 0)
      change_any(any(proto.mutable_functions())->mutable_node(), *proto.mutable_graph());
    else
      change(*proto.mutable_graph());
  }

  // A name that a node could have as an input.
  std::string any_name(GraphProto &graph) {
    if (below(8) == 0) return "";
    if (below(4) == 0 && graph.initializer_size() > 0) return any(graph.mutable_initializer())->name();
    if (below(8) == 0 && graph.input_size() > 0) return any(graph.mutable_input())->name();
    if (graph.node_size() == 0) return "nothing";
    const NodeProto &node = *any(graph.mutable_node());
    return node.output_size() > 0 ? node.output(0) : "nothing";
  }

 private:
  std::int64_t telling() {
    using Limits = std::numeric_limits<std::int64_t>;
    constexpr std::int64_t kTelling[] = {0,
                                         1,
                                         -1,
                                         2,
                                         3,
                                         -2,
                                         7,
                                         1 << 16,
                                         -(1 << 16),
                                         0x7fffffff,
                                         -0x80000000ll,
                                         1ll << 40,
                                         1ll << 62,
                                         Limits::max(),
                                         Limits::min()};
    return kTelling[below(std::size(kTelling))];
  }

  void change(TensorProto &tensor) {
    switch (below(8)) {
      case 0:
        if (tensor.dims_size() > 0)
          tensor.set_dims(static_cast<int>(below(static_cast<std::size_t>(tensor.dims_size()))), telling());
        break;
      case 1:
        tensor.set_data_type(static_cast<std::int32_t>(below(24)));
        break;
      case 2:  // changes the shape, but not the number of elements
        if (tensor.dims_size() > 1 && below(2) == 0)
          tensor.mutable_dims()->SwapElements(0, tensor.dims_size() - 1);
        else
          tensor.add_dims(1);
        break;
      case 3:
        if (below(4) == 0) change_external(tensor);
        break;
      default:  // writes an int64 into the raw data, because most small constants have that type
        if (tensor.raw_data().size() >= sizeof(std::int64_t)) {
          const std::int64_t value = telling();
          std::string &raw = *tensor.mutable_raw_data();
          std::memcpy(&raw[below(raw.size() / sizeof value) * sizeof value], &value, sizeof value);
        }
    }
  }

  // Declares that the tensor's values are in an external file. Some of the locations have no file.
  void change_external(TensorProto &tensor) {
    constexpr const char *kLocations[] = {"data", "./data", "../data", "missing", "/dev/zero", "", "folder"};
    const auto add = [&](const char *key, const std::string &value) {
      auto *entry = tensor.add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    tensor.clear_raw_data();
    tensor.set_data_location(1);
    add("location", kLocations[below(below(2) == 0 ? 1 : std::size(kLocations))]);
    if (below(2) == 0) add("offset", std::to_string(below(4) == 0 ? telling() : 64));
    if (below(2) == 0) add("length", std::to_string(below(2) == 0 ? telling() : 64));
    if (below(8) == 0) add("checksum", std::string(40, 'a'));
  }

  void change(AttributeProto &attribute) {
    if (attribute.has_t()) return change(*attribute.mutable_t());
    if (attribute.has_g()) return change(*attribute.mutable_g());
    if (attribute.ints_size() > 0 && below(3) > 0)
      attribute.set_ints(static_cast<int>(below(static_cast<std::size_t>(attribute.ints_size()))), telling());
    else if (attribute.ints_size() > 0)
      attribute.add_ints(telling());
    if (attribute.has_i()) attribute.set_i(telling());
    if (attribute.has_f()) attribute.set_f(below(2) == 0 ? std::numeric_limits<float>::quiet_NaN() : -1e30f);
    if (attribute.has_s()) attribute.set_s("none");
    if (below(8) == 0) attribute.set_type(static_cast<std::int32_t>(below(16)));
    if (below(8) == 0) attribute.set_name("axis");
  }

  void change(NodeProto &node, GraphProto &graph) {
    switch (below(8)) {
      case 0:
        node.set_op_type(any(graph.mutable_node())->op_type());
        break;
      case 1:
        if (node.input_size() > 0)
          node.set_input(static_cast<int>(below(static_cast<std::size_t>(node.input_size()))), any_name(graph));
        break;
      case 2:
        node.add_input(any_name(graph));
        break;
      case 3:
        if (node.input_size() > 0) node.mutable_input()->RemoveLast();
        break;
      case 4:
        node.add_output("also_" + std::to_string(below(1000)));
        break;
      case 5:
        if (node.attribute_size() > 0 && below(4) == 0) node.mutable_attribute()->RemoveLast();
        break;
      default:
        if (node.attribute_size() > 0) change(*any(node.mutable_attribute()));
    }
  }
  template <typename Nodes>
  void change_any(Nodes *nodes, GraphProto &graph) {
    if (nodes->size() == 0 || graph.node_size() == 0) return;
    NodeProto &node = *any(nodes);
    const bool has_body = node.attribute_size() > 0 && node.attribute(0).has_g();
    if (has_body && below(8) != 0)  // most of a model may lie in it
      return change(*any(node.mutable_attribute()));
    change(node, graph);
  }

  // Inserts a copy of a random node between a value and one of the value's readers.
  void repeat_node(GraphProto &graph) {
    NodeProto copy = *any(graph.mutable_node());
    NodeProto &reader = *any(graph.mutable_node());
    if (copy.output_size() == 0 || copy.input_size() == 0 || reader.input_size() == 0) return;
    const int at = static_cast<int>(below(static_cast<std::size_t>(reader.input_size())));
    const std::string name = "new_" + std::to_string(below(1'000'000));
    copy.set_input(0, reader.input(at));
    copy.mutable_output()->Clear();
    copy.add_output(name);
    copy.set_name(name);
    reader.set_input(at, name);
    *graph.add_node() = copy;
  }

  void change_input(GraphProto &graph) {
    auto *type = any(graph.mutable_input())->mutable_type()->mutable_tensor_type();
    if (below(8) == 0) type->set_elem_type(static_cast<std::int32_t>(below(24)));
    auto *shape = type->mutable_shape();
    if (below(8) == 0) shape->add_dim()->set_dim_value(1);
    if (shape->dim_size() == 0) return;
    auto *dim = any(shape->mutable_dim());
    if (below(4) == 0)
      dim->set_dim_param("symbol");
    else
      dim->set_dim_value(below(2) == 0 ? telling() : static_cast<std::int64_t>(1 + below(8)));
  }

  void change(GraphProto &graph) {
    const std::size_t kind = below(12);
    if (kind == 0 && graph.initializer_size() > 0) return change(*any(graph.mutable_initializer()));
    if (kind == 1 && graph.input_size() > 0) return change_input(graph);
    if (kind == 2 && graph.output_size() > 0) return graph.mutable_output(0)->set_name(any_name(graph));
    if (kind == 3 && graph.node_size() > 0) return repeat_node(graph);
    if (kind == 4 && graph.node_size() > 1 && below(2) == 0) return graph.mutable_node()->RemoveLast();
    change_any(graph.mutable_node(), graph);
  }

  std::mt19937 random_;
};

}  // namespace protrain::test
