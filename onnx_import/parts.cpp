#include "onnx_import/parts.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

namespace protrain::onnx_import {

void add_reads(const NodeProto &node, std::vector<std::string> &reads) {
  reads.insert(reads.end(), node.input().begin(), node.input().end());
  for (const AttributeProto &attribute : node.attribute()) {
    for (const NodeProto &inner : attribute.g().node()) add_reads(inner, reads);
    for (const ValueInfo &output : attribute.g().output()) reads.push_back(output.name());
  }
}

std::vector<bool> needed_nodes(const GraphProto &graph, const std::vector<std::string> &wanted) {
  std::map<std::string_view, int> producers;
  for (int n = 0; n < graph.node_size(); ++n)
    for (const std::string &output : graph.node(n).output()) producers.emplace(output, n);
  std::vector<bool> needed(static_cast<std::size_t>(graph.node_size()), false);
  std::vector<std::string> pending = wanted;
  while (!pending.empty()) {
    const auto made = producers.find(pending.back());
    pending.pop_back();
    if (made == producers.end() || needed[static_cast<std::size_t>(made->second)]) continue;
    needed[static_cast<std::size_t>(made->second)] = true;
    add_reads(graph.node(made->second), pending);
  }
  return needed;
}

std::string text_of_float(double number) { return fmt::format("{}", static_cast<float>(number)); }

}  // namespace protrain::onnx_import
