#include "passes/problems.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "graph/dependence.h"
#include "ops/op.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

constexpr std::size_t kMostKinds = 20, kMostNodes = 5;  // in one sentence

constexpr const char *kIntegers =
    " computes with integers; give the model from before quantisation, or quantise it with QuantizeLinear and "
    "DequantizeLinear in pairs (QuantFormat.QDQ of onnxruntime.quantization.quantize_static)";
constexpr const char *kDynamic =
    " computes scales from data; give the model from before quantisation, or quantise it with QuantizeLinear and "
    "DequantizeLinear in pairs (QuantFormat.QDQ of onnxruntime.quantization.quantize_static)";
constexpr const char *kOtherForm =
    " holds quantised weights in a form that is not read; MatMulNBits, GatherBlockQuantized and DequantizeLinear are "
    "read";

constexpr const char *kMap =
    " is unknown; if the model gives classes and a map of their probabilities, convert it with "
    "options={\"zipmap\": False}";
constexpr const char *kLinear =
    " holds its weights as attributes, which cannot be trained; a model with MatMul and Add in its place can";

// Advice about unknown operators whose names contain `part`.
struct Advice {
  std::string_view part;
  const char *text;
};
constexpr auto kAdvice = std::to_array<Advice>({{"DynamicQuantize", kDynamic},
                                                {"MatMulBnb4", kOtherForm},
                                                {"MatMulFpQ4", kOtherForm},
                                                {"QMoE", kOtherForm},
                                                {"ConvInteger", kIntegers},
                                                {"MatMulInteger", kIntegers},
                                                {"QLinear", kIntegers},
                                                {"::QAttention", kIntegers},
                                                {"::QEmbedLayerNormalization", kIntegers},
                                                {"::QGemm", kIntegers},
                                                {"ai.onnx.ml::ArrayFeatureExtractor", kMap},
                                                {"ai.onnx.ml::ZipMap", kMap},
                                                {"ai.onnx.ml::Linear", kLinear}});

const char *advice_for(const std::string &op) {
  const auto found = std::ranges::find_if(kAdvice, [&](const Advice &row) { return op.find(row.part) != op.npos; });
  return found == kAdvice.end() ? " is unknown" : found->text;
}

bool is_typed(const Graph &graph, ValueId id) {
  return id == ValueId::none || graph.value(id).type.dtype != DType::none;
}

bool reads_untyped(const Graph &graph, const Node &node) {
  return std::ranges::any_of(node.inputs, [&](ValueId in) { return !is_typed(graph, in); });
}

// Returns the reason why a node with typed inputs has untyped outputs. Infers the types again to find this reason.
std::string why_untyped(const Graph &graph, const Node &node) {
  try {
    return fmt::format(" has {} outputs, of which {} are known here", node.outputs.size(),
                       ops::infer(graph, node).size());
  } catch (const Error &error) {
    if (error.code != Code::unsupported) throw;
    return ": " + error.text;
  }
}

std::size_t node_count(const std::vector<Problem> &problems) {
  std::size_t count = 0;
  for (const Problem &problem : problems) count += problem.nodes.size();
  return count;
}

std::string sentence_of(const std::vector<Problem> &problems, std::size_t behind) {
  std::vector<std::string> kinds;
  for (const Problem &problem : problems) {
    if (kinds.size() == kMostKinds) break;
    kinds.push_back(problem.text());
  }
  const std::size_t count = node_count(problems);
  std::string text =
      fmt::format("{} operator{} cannot be trained: {}", count, count == 1 ? "" : "s", fmt::join(kinds, "; "));
  if (problems.size() > kMostKinds) text += fmt::format("; and {} more kinds", problems.size() - kMostKinds);
  if (behind == 0) return text;
  return fmt::format("{}; {} node{} behind these could not be looked at", text, behind, behind == 1 ? "" : "s");
}

// Marks the floats that depend on a trained parameter. Also marks untyped values that depend on one, because they may
// be floats.
std::vector<bool> trained_values(const Graph &graph) {
  std::vector<bool> trained(graph.value_count(), false);
  for (ValueId id : graph.parameters) trained[index(id)] = graph::is_trained(graph.value(id));
  for (const Node &node : graph.nodes()) {
    const bool any = !ops::is_flat(node) && std::ranges::any_of(node.inputs, [&](ValueId in) {
      return in != ValueId::none && trained[index(in)];
    });
    for (ValueId out : node.outputs) {
      if (out == ValueId::none) continue;
      const DType dtype = graph.value(out).type.dtype;
      trained[index(out)] = any && (is_float(dtype) || dtype == DType::none);
    }
  }
  return trained;
}

std::vector<bool> needed_values(const Graph &graph) {
  std::vector<bool> needed(graph.value_count(), false);
  for (ValueId out : graph.outputs) {
    const Type &type = graph.value(out).type;
    if (!may_be_loss(type) && type.dtype != DType::none) continue;
    needed[index(out)] = true;
    break;
  }
  return graph::with_dependencies(graph, std::move(needed), ops::is_flat);
}

}  // namespace

std::string Problem::text() const {
  const std::size_t shown = std::min(nodes.size(), kMostNodes);
  const std::string more = shown == nodes.size() ? "" : fmt::format(" and {} more", nodes.size() - shown);
  const auto end = nodes.begin() + static_cast<std::ptrdiff_t>(shown);
  return fmt::format("{}{} ({}{})", op, reason, fmt::join(nodes.begin(), end, ", "), more);
}

Untrainable::Untrainable(std::vector<Problem> problems_, std::size_t behind_)
    : Error(Code::unsupported, problems_.front().nodes.front(), sentence_of(problems_, behind_)),
      problems(std::move(problems_)),
      behind(behind_) {}

void Problems::add(const Node &node, const std::string &reason) {
  const auto same = [&](const Problem &problem) { return problem.op == node.op && problem.reason == reason; };
  const auto found = std::ranges::find_if(problems_, same);
  Problem &problem = found != problems_.end() ? *found : problems_.emplace_back(Problem{node.op, reason, {}});
  problem.nodes.push_back(node.subject());
}

void Problems::collect_without_core_form(const Graph &graph, const std::map<ValueId, std::string> &refusals) {
  for (const Node &node : graph.nodes()) {
    const ops::Op *op = ops::find(node.op);
    if (op == nullptr) {
      add(node, advice_for(node.op));
      continue;
    }
    if (reads_untyped(graph, node)) {
      ++behind_;
      continue;
    }
    const auto refusal = node.outputs.empty() ? refusals.end() : refusals.find(node.outputs[0]);
    const bool computed = std::ranges::any_of(op->absorbed, [&](const auto &item) { return has(node, item.input); });
    if (!is_core(node.op))
      add(node, refusal != refusals.end() ? ": " + refusal->second : " has a form that is not supported on data");
    else if (computed)
      add(node, " has parameters that depend on data");
    else if (std::ranges::any_of(node.outputs, [&](ValueId out) { return !is_typed(graph, out); }))
      add(node, why_untyped(graph, node));
  }
}

void Problems::collect_without_gradient(const Graph &graph) {
  const std::vector<bool> trained = trained_values(graph), needed = needed_values(graph);
  const auto crossed = [&](ValueId id) { return id != ValueId::none && trained[index(id)] && needed[index(id)]; };
  for (const Node &node : graph.nodes()) {
    const ops::Op *op = ops::find(node.op);
    if (op == nullptr || !is_core(node.op) || reads_untyped(graph, node) || std::ranges::none_of(node.outputs, crossed))
      continue;
    if (op->gradient == nullptr)
      add(node, " has no gradient");
    else if (node.op == "FusedAttention" && has(node, 3) && crossed(node.inputs[3]))
      add(node, " has no gradient to a learned bias of its scores");
  }
}

void Problems::require_none() const {
  if (!problems_.empty()) throw Untrainable(problems_, behind_);
}

}  // namespace protrain::passes
