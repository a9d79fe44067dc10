#include "onnx_import/torch_calls.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/text.h"
#include "onnx_import/versions.h"

namespace protrain::onnx_import {

namespace {

// A PyTorch call, as a node's metadata describes it. In this example `result` is "embedding", `target` is
// "torch.ops.aten.embedding.default", and `arguments` is "%p_weight, %i, 0":
//   %embedding : [num_users=2] = call_function[target=torch.ops.aten.embedding.default](args = (%p_weight, %i, 0), ...
struct TorchCall {
  std::string_view result, target, arguments;
};

// Returns the text between the first `begin` and the next `end`. Returns "" if there is no `begin`.
std::string_view between(std::string_view text, std::string_view begin, std::string_view end) {
  const std::size_t at = text.find(begin);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = text.substr(at + begin.size());
  return rest.substr(0, rest.find(end));
}

TorchCall call_of(const NodeProto &node) {
  for (const StringPair &entry : node.metadata_props())
    if (entry.key() == "pkg.torch.onnx.fx_node")
      return {between(entry.value(), "%", " "), between(entry.value(), "[target=", "]"),
              between(entry.value(), "](args = (", "), kwargs")};
  return {};
}

// True for "detach" and "detach_7", the names that PyTorch gives the results of detach().
bool names_detach(std::string_view name) {
  constexpr std::string_view kName = "detach";
  if (!name.starts_with(kName)) return false;
  const std::string_view number = name.substr(kName.size());
  return number.empty() ||
         (number.size() > 1 && number[0] == '_' && number.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

// Returns the names of the values among the arguments of a call, in their order.
std::vector<std::string_view> values_among(std::string_view arguments) {
  std::vector<std::string_view> names;
  for (std::size_t at = arguments.find('%'); at != std::string_view::npos; at = arguments.find('%', at + 1)) {
    const std::string_view rest = arguments.substr(at + 1);
    names.push_back(rest.substr(0, rest.find_first_of(", ])")));
  }
  return names;
}

// Returns the argument at `index` of a call, or "" if the call has fewer. The arguments are cut at each ", ", so none
// of them may be a list.
std::string_view argument_of(const TorchCall &call, std::size_t index) {
  constexpr std::string_view kApart = ", ";
  std::string_view rest = call.arguments;
  for (std::size_t i = 0; i < index; ++i) {
    const std::size_t at = rest.find(kApart);
    if (at == std::string_view::npos) return "";
    rest.remove_prefix(at + kApart.size());
  }
  return rest.substr(0, rest.find(kApart));
}

bool is_onnx(const NodeProto &node, std::string_view op) {
  return node.op_type() == op && is_default_domain(node.domain());
}

}  // namespace

bool is_detach(const NodeProto &node) {
  return is_onnx(node, "Identity") && call_of(node).target == "torch.ops.aten.detach.default";
}

std::optional<std::int64_t> padding_of(const NodeProto &node) {
  if (!is_onnx(node, "Gather")) return std::nullopt;
  const TorchCall call = call_of(node);
  if (call.target != "torch.ops.aten.embedding.default") return std::nullopt;
  const std::optional<std::int64_t> row = parse_integer(argument_of(call, 2));
  return row && *row >= 0 ? row : std::nullopt;
}

std::vector<std::string> losses_without_smoothing(const GraphProto &graph) {
  std::vector<std::string> losses;
  for (const NodeProto &node : graph.node()) {
    if (!is_onnx(node, "SoftmaxCrossEntropyLoss")) continue;
    const TorchCall call = call_of(node);
    if (call.target != "torch.ops.aten.cross_entropy_loss.default") continue;
    const std::optional<double> smoothing = parse_real(argument_of(call, 5));
    if (smoothing && *smoothing != 0) losses.push_back(node.name());
  }
  return losses;
}

std::vector<std::string> norms_out_of_training(const GraphProto &graph) {
  std::vector<std::string> norms;
  for (const NodeProto &node : graph.node()) {
    if (!is_onnx(node, "BatchNormalization")) continue;
    const bool trains = std::any_of(node.attribute().begin(), node.attribute().end(), [](const auto &attribute) {
      return attribute.name() == "training_mode" && attribute.i() != 0;
    });
    const TorchCall call = call_of(node);
    const bool normalizes = call.target.find("batch_norm") != std::string_view::npos;
    if (!trains && normalizes && argument_of(call, 5) == "True") norms.push_back(node.name());
  }
  return norms;
}

std::vector<std::string> attentions_without_dropout(const GraphProto &graph) {
  std::vector<std::string> attentions;
  for (const NodeProto &node : graph.node()) {
    if (!is_onnx(node, "Attention") && !(is_onnx(node, "Dropout") && node.input_size() < 3)) continue;
    const TorchCall call = call_of(node);
    if (call.target != "torch.ops.aten.scaled_dot_product_attention.default") continue;
    const std::optional<double> ratio = parse_real(argument_of(call, 4));
    if (ratio && *ratio > 0) attentions.push_back(node.name());
  }
  return attentions;
}

std::vector<std::string> readers_of_lost_detach(const GraphProto &graph,
                                                const std::map<std::string, graph::StoredKind> &kinds) {
  std::set<std::string_view> kept, trained;  // results of detach() in the file; values that depend on a parameter
  for (const auto &[name, kind] : kinds)
    if (kind == graph::StoredKind::parameter) trained.insert(name);
  const auto is_trained = [&](std::string_view name) { return trained.contains(name); };
  std::vector<std::string> readers;
  for (const NodeProto &node : graph.node()) {
    const TorchCall call = call_of(node);
    if (is_detach(node)) kept.insert(call.result);
    const std::vector<std::string_view> values = values_among(call.arguments);
    const bool reads_trained = std::ranges::any_of(node.input(), is_trained);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!names_detach(values[i]) || kept.contains(values[i])) continue;
      // If the node has as many inputs as its call has values, the inputs are these values, in the same order.
      // Otherwise the exporter wrote several nodes for the call, and nothing says which input is values[i].
      const bool known = static_cast<std::size_t>(node.input_size()) == values.size();
      const bool stops = known ? is_trained(node.input(static_cast<int>(i))) : reads_trained;
      if (stops && (readers.empty() || readers.back() != node.name())) readers.push_back(node.name());
    }
    if (!is_detach(node) && reads_trained)
      for (const std::string &output : node.output()) trained.insert(output);
  }
  return readers;
}

}  // namespace protrain::onnx_import
