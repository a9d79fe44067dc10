#include "draft/past.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace protrain::draft {

bool holds_past(const onnx_import::Input &input) {
  std::string name = input.name;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return is_float(input.dtype) && input.dims.size() >= 3 &&
         (name.find("past") != std::string::npos || name.find("cache") != std::string::npos);
}

// Chooses for each input of the past the symbolic dim that counts earlier tokens. Returns, for each chosen dim, an
// input's name. A dim qualifies if it is not the input's first dim and no input outside of the past has it. If several
// dims qualify, prefers the input's second-to-last dim, which comes before the features. If that dim does not qualify,
// chooses the first one that does.
std::map<std::string, std::string> past_dims(const onnx_import::Model &model) {
  std::set<std::string> others;
  for (const onnx_import::Input &input : model.inputs())
    for (const onnx_import::Dim &dim : input.dims)
      if (const auto *name = std::get_if<std::string>(&dim); name != nullptr && !holds_past(input))
        others.insert(*name);
  std::map<std::string, std::string> found;
  for (const onnx_import::Input &input : model.inputs()) {
    if (!holds_past(input)) continue;
    std::vector<std::string> own;
    for (auto dim = input.dims.begin() + 1; dim != input.dims.end(); ++dim)
      if (const auto *name = std::get_if<std::string>(&*dim); name != nullptr && !others.contains(*name))
        own.push_back(*name);
    const auto *before_features = std::get_if<std::string>(&input.dims[input.dims.size() - 2]);
    if (own.size() > 1 && before_features != nullptr && !others.contains(*before_features)) own = {*before_features};
    if (!own.empty()) found.emplace(own.front(), input.name);
  }
  return found;
}

void bind_past(const onnx_import::Model &model, onnx_import::DimBindings &dims) {
  const std::map<std::string, std::string> found = past_dims(model);
  require(!found.empty(), Code::arg, "past",
          "past=none, and no input of the model holds earlier tokens in a dim that can be bound");
  for (const auto &[dim, input] : found) {
    const auto [bound, fresh] = dims.emplace(dim, 0);
    require(fresh || bound->second == 0, Code::arg, "past",
            "past=none, and dim {} is bound to {}; leave one of them out", printable(dim), bound->second);
  }
}

void require_past_bound(const onnx_import::Model &model, const onnx_import::DimBindings &dims) {
  for (const auto &[dim, input] : past_dims(model))
    require(dims.contains(dim), Code::shape, printable(dim),
            "the number of earlier tokens in {} has no value; set past=none, or bind the dim", printable(input));
}

void drop_unread_past(const onnx_import::Model &model, graph::Graph &graph) {
  std::set<graph::ValueId> read(graph.outputs.begin(), graph.outputs.end());
  for (const graph::Node &node : graph.nodes()) read.insert(node.inputs.begin(), node.inputs.end());
  for (const onnx_import::Input &input : model.inputs()) {
    const graph::ValueId id = graph.find(input.name);
    if (holds_past(input) && !read.contains(id)) std::erase(graph.inputs, id);
  }
}

}  // namespace protrain::draft
