// Works on the skeleton's messages. Large values stay in the file: a copy of a tensor refers to the original's
// position.
#include "onnx_import/split_model.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/error.h"

namespace protrain::onnx_import {

SplitModel::SplitModel(const ModelProto &original, const std::vector<graph::Split> &splits)
    : proto_(messages_.copy(original)) {
  for (const graph::Split &split : splits) add_copy(split);
  drop_identities(splits);
  redirect(splits);
  for (const TensorProto &tensor : proto_.graph().initializer())
    initializers_.emplace(tensor.name(), parse_tensor(tensor, tensor.name()));
}

void SplitModel::add_copy(const graph::Split &split) {
  GraphProto &graph = *proto_.mutable_graph();
  const auto named = [&](const auto &item) { return item.name() == split.original; };
  const auto found = std::find_if(graph.initializer().begin(), graph.initializer().end(), named);
  require(found != graph.initializer().end(), Code::internal, split.original, "a split value is not an initializer");
  const TensorProto &tensor = *found;
  TensorProto &copy = *graph.add_initializer();
  copy = tensor;
  copy.set_name(split.name);
  // Files of IR 3, and some later ones, also list initializers among the inputs. In such a file the initializer's copy
  // becomes an input too.
  const auto input = std::find_if(graph.input().begin(), graph.input().end(), named);
  if (input == graph.input().end()) return;
  const ValueInfo &info = *input;
  ValueInfo &added = *graph.add_input();
  added = info;
  added.set_name(split.name);
}

// Removes the nodes whose outputs have become initializers.
void SplitModel::drop_identities(const std::vector<graph::Split> &splits) {
  std::set<std::string_view> copies;
  for (const graph::Split &split : splits) copies.insert(split.name);
  auto &nodes = *proto_.mutable_graph()->mutable_node();
  const auto is_copy = [&](const NodeProto &node) {
    return node.output_size() == 1 && copies.contains(node.output(0));
  };
  nodes.erase(std::remove_if(nodes.begin(), nodes.end(), is_copy), nodes.end());
}

namespace {

// Follows Identity nodes back from `name`, and returns the name of the value that they pass on. Returns `name` itself
// if no Identity makes it.
std::string stored_as(const std::map<std::string, NodeProto *> &makers, std::string name) {
  for (auto maker = makers.find(name); maker != makers.end(); maker = makers.find(name)) {
    const NodeProto &node = *maker->second;
    if (node.op_type() != "Identity" || node.input_size() != 1) break;
    name = node.input(0);
  }
  return name;
}

}  // namespace

void SplitModel::redirect(const std::vector<graph::Split> &splits) {
  std::map<std::string, NodeProto *> makers;
  for (NodeProto &node : *proto_.mutable_graph()->mutable_node())
    for (const std::string &output : node.output()) makers.emplace(output, &node);
  for (const graph::Split &split : splits)
    for (const graph::Split::Reader &reader : split.readers) {
      const auto found = makers.find(reader.output);
      const auto at = static_cast<int>(reader.input);
      require(found != makers.end() && at < found->second->input_size() &&
                  stored_as(makers, found->second->input(at)) == split.original,
              Code::internal, split.original, "a split value is not read by the node that makes {}", reader.output);
      found->second->set_input(at, split.name);
    }
}

}  // namespace protrain::onnx_import
