#include "onnx_import/torch_calls.h"

#include <charconv>
#include <string_view>

namespace protrain::onnx_import {

namespace {

// Returns the arguments of the node's call if it calls the operator `name`. Of a call in the metadata, such as
//   %e : [num_users=2] = call_function[target=torch.ops.aten.embedding.default](args = (%p_weight, %i, 0), kwargs = {})
// these are "%p_weight, %i, 0".
std::optional<std::string_view> arguments_of(const NodeProto &node, std::string_view name) {
  constexpr std::string_view kBegin = "](args = (", kEnd = "), kwargs";
  for (const StringPair &entry : node.metadata_props()) {
    if (entry.key() != "pkg.torch.onnx.fx_node") continue;
    const std::string_view call = entry.value();
    const std::string target = "[target=torch.ops.aten." + std::string(name);
    const std::size_t at = call.find(target + std::string(kBegin));
    if (at == std::string_view::npos) continue;
    const std::string_view rest = call.substr(at + target.size() + kBegin.size());
    return rest.substr(0, rest.find(kEnd));
  }
  return std::nullopt;
}

bool is_onnx(const NodeProto &node, std::string_view op) {
  return node.op_type() == op && (node.domain().empty() || node.domain() == "ai.onnx");
}

}  // namespace

bool is_detach(const NodeProto &node) { return is_onnx(node, "Identity") && arguments_of(node, "detach.default"); }

std::optional<std::int64_t> padding_of(const NodeProto &node) {
  if (!is_onnx(node, "Gather")) return std::nullopt;
  const std::string_view arguments = arguments_of(node, "embedding.default").value_or("");
  constexpr std::string_view kApart = ", ";
  std::size_t at = arguments.find(kApart);
  if (at != std::string_view::npos) at = arguments.find(kApart, at + kApart.size());
  if (at == std::string_view::npos) return std::nullopt;

  std::int64_t row = -1;
  std::from_chars(arguments.data() + at + kApart.size(), arguments.data() + arguments.size(), row);
  return row >= 0 ? std::optional(row) : std::nullopt;
}

}  // namespace protrain::onnx_import
