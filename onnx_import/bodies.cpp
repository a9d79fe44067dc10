#include "onnx_import/bodies.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/text.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

namespace {

using Names = std::unordered_map<std::string, std::string>;

bool is_weight(const TensorProto &tensor) {
  const bool several = std::any_of(tensor.dims().begin(), tensor.dims().end(), [](auto dim) { return dim > 1; });
  return several && is_float(stored_dtype_of(tensor.data_type(), printable(tensor.name())));
}

class WeightMover {
 public:
  explicit WeightMover(ModelProto &model) : main_(*model.mutable_graph()) {}

  void run() {
    const auto has_body = [](const NodeProto &node) {
      return std::ranges::any_of(node.attribute(), [](const AttributeProto &attribute) { return attribute.has_g(); });
    };
    if (std::ranges::none_of(main_.node(), has_body)) return;
    count_names(main_);
    for (NodeProto &node : *main_.mutable_node()) visit_bodies(node, [this](GraphProto &body) { move(body); });
  }

 private:
  template <typename Visit>
  static void visit_bodies(NodeProto &node, const Visit &visit) {
    for (AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g()) visit(*attribute.mutable_g());
  }

  // For each name, counts the graphs that define the name. Looks at `graph` and at the bodies in it.
  void count_names(GraphProto &graph) {
    std::unordered_set<std::string> here;
    for (const TensorProto &tensor : graph.initializer()) here.insert(tensor.name());
    for (const ValueInfo &input : graph.input()) here.insert(input.name());
    for (NodeProto &node : *graph.mutable_node()) {
      here.insert(node.output().begin(), node.output().end());
      visit_bodies(node, [this](GraphProto &body) { count_names(body); });
    }
    for (const std::string &name : here) ++places_[name];
  }

  void move(GraphProto &body) {
    Names renamed;
    std::unordered_set<std::string> stay;  // ONNX Runtime refuses a body that returns a value from outside
    for (const ValueInfo &input : body.input()) stay.insert(input.name());
    for (const ValueInfo &output : body.output()) stay.insert(output.name());
    int kept = 0;
    for (int i = 0; i < body.initializer_size(); ++i) {
      TensorProto &tensor = *body.mutable_initializer(i);
      if (!is_weight(tensor) || stay.contains(tensor.name())) {
        body.mutable_initializer()->SwapElements(i, kept++);
        continue;
      }
      const std::string name = unique(tensor.name());
      if (name != tensor.name()) renamed[tensor.name()] = name;
      TensorProto &moved = *main_.add_initializer();
      moved.Swap(&tensor);
      moved.set_name(name);
    }
    body.mutable_initializer()->DeleteSubrange(kept, body.initializer_size() - kept);
    if (!renamed.empty()) rename(body, renamed);
    for (NodeProto &node : *body.mutable_node()) visit_bodies(node, [this](GraphProto &inner) { move(inner); });
  }

  std::string unique(const std::string &name) {
    if (places_[name] == 1) return name;
    for (int &suffix = suffixes_[name];;) {
      std::string other = fmt::format("{}_{}", name, ++suffix);
      if (places_.emplace(other, 1).second) return other;
    }
  }

  static void rename(std::string &name, const Names &renamed) {
    const auto found = renamed.find(name);
    if (found != renamed.end()) name = found->second;
  }

  // Replaces the names in `renamed` wherever `body`, or a body inside it, reads them. If an inner body defines such a
  // name itself, the name is not replaced there. While an inner body is visited, the names that it defines are taken
  // out of `renamed`, and then put back. A copy of `renamed` for each body would be slow, because there may be as many
  // names as inner bodies.
  static void rename(GraphProto &body, Names &renamed) {
    for (ValueInfo &output : *body.mutable_output()) rename(*output.mutable_name(), renamed);
    for (NodeProto &node : *body.mutable_node()) {
      for (std::string &input : *node.mutable_input()) rename(input, renamed);
      visit_bodies(node, [&](GraphProto &inner) {
        std::vector<Names::node_type> defined;
        const auto take_out = [&](const std::string &name) { defined.push_back(renamed.extract(name)); };
        for (const TensorProto &tensor : inner.initializer()) take_out(tensor.name());
        for (const ValueInfo &input : inner.input()) take_out(input.name());
        for (const NodeProto &one : inner.node())
          for (const std::string &output : one.output()) take_out(output);
        if (!renamed.empty()) rename(inner, renamed);
        for (Names::node_type &name : defined) renamed.insert(std::move(name));
      });
    }
  }

  GraphProto &main_;
  std::unordered_map<std::string, int> places_;  // how many graphs define a name
  std::unordered_map<std::string, int> suffixes_;
};

}  // namespace

void move_weights_out(ModelProto &model) { WeightMover(model).run(); }

}  // namespace protrain::onnx_import
