#include "onnx_import/merged_tensors.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/scope.h"

namespace protrain::onnx_import {

namespace {

constexpr const char *kComputed = ".computed";  // the last word of the name of a computed tensor

bool is_computed(std::string_view name) { return name.starts_with("onnx::"); }

// True for the name of a tensor. The exporter gives values that a model computes other names: their scope, which begins
// with "/", or a number in older files.
bool names_tensor(std::string_view name) {
  return !name.empty() && name[0] != '/' && !is_computed(name) &&
         name.find_first_not_of("0123456789") != std::string_view::npos;
}

class MergedTensors {
 public:
  MergedTensors(const ModelProto &proto, const std::map<std::string, Tensor> &initializers) {
    for (const NodeProto &node : proto.graph().node())
      for (const std::string &input : node.input()) readers_[input].push_back(&node);
    for (const ValueInfo &output : proto.graph().output()) outputs_.insert(output.name());
    for (const NodeProto &node : proto.graph().node())
      if (node.op_type() == "Identity" && node.input_size() == 1 && node.output_size() == 1 &&
          initializers.contains(node.input(0)) && !outputs_.contains(node.output(0)))
        stored_.emplace(node.output(0), node.input(0));
  }

  std::map<std::string, graph::MergedTensor> found() const {
    std::map<std::string, graph::MergedTensor> found;
    for (const auto &[name, stored] : stored_) {
      if (names_tensor(name)) found.emplace(name, graph::MergedTensor{stored, name, stored});
      if (!is_computed(name)) continue;
      const std::optional<std::string> module = only_module(name), other = only_module(stored);
      if (module && other && *module != *other)
        found.emplace(name, graph::MergedTensor{stored, *module + kComputed, *other + kComputed});
    }
    return found;
  }

 private:
  // Returns the module of all nodes that read the value, other than Identity nodes. An empty optional: there are
  // several, or none.
  std::optional<std::string> only_module(const std::string &value) const {
    std::optional<std::string> module;
    const auto readers = readers_.find(value);
    if (readers == readers_.end()) return module;
    for (const NodeProto *node : readers->second) {
      if (node->op_type() == "Identity") continue;
      const std::string own = graph::module_of_scope(node->name());
      if (own.empty() || (module && *module != own)) return std::nullopt;
      module = own;
    }
    return module;
  }

  std::map<std::string, std::vector<const NodeProto *>> readers_;
  std::set<std::string> outputs_;
  std::map<std::string, std::string> stored_;  // the stored tensor, by the output of an Identity of it
};

}  // namespace

std::map<std::string, graph::MergedTensor> merged_tensors(const ModelProto &proto,
                                                          const std::map<std::string, Tensor> &initializers) {
  const auto has_metadata = [](const NodeProto &node) { return node.metadata_props_size() > 0; };
  const auto has_scope = [](const NodeProto &node) { return node.name().starts_with('/'); };
  const auto &nodes = proto.graph().node();
  if (proto.producer_name() != "pytorch" || std::any_of(nodes.begin(), nodes.end(), has_metadata)) return {};
  if (std::none_of(nodes.begin(), nodes.end(), has_scope)) return {};
  return MergedTensors(proto, initializers).found();
}

}  // namespace protrain::onnx_import
