// The passes in order, and the one error that names everything that cannot be trained.
#include <fmt/format.h>
#include <algorithm>

#include "base/error.h"
#include "passes/attach_loss.h"
#include "passes/canonical.h"
#include "passes/mend.h"
#include "passes/passes.h"
#include "passes/split.h"

namespace protrain::passes {

namespace {

constexpr ValueId kNone = ValueId::none;
constexpr std::size_t kMostNamed = 20;
constexpr int kMostFusions = 5;

struct Problem {
  const Node *node;
  std::string reason;
};

void collect_without_core_form(const Graph &graph, std::vector<Problem> &problems) {
  for (const Node &node : graph.nodes()) {
    const ops::Op *op = ops::find(node.op);
    if (op == nullptr) {
      problems.push_back({&node, "is unknown"});
      continue;
    }
    const bool computed = std::ranges::any_of(op->absorbed, [&](const auto &item) { return has(node, item.input); });
    if (!is_core(node.op))
      problems.push_back({&node, "has a form that is not supported on data"});
    else if (computed)
      problems.push_back({&node, "has parameters that depend on data"});
  }
}

// Values that a trained parameter is behind; what could not be typed may be one.
std::vector<bool> trained_values(const Graph &graph) {
  std::vector<bool> trained(graph.value_count(), false);
  for (ValueId id : graph.parameters) trained[index(id)] = !graph.value(id).frozen;
  for (const Node &node : graph.nodes()) {
    const bool any = std::ranges::any_of(node.inputs, [&](ValueId in) { return in != kNone && trained[index(in)]; });
    for (ValueId out : node.outputs) {
      if (out == kNone) continue;
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
    if ((!is_float(type.dtype) || element_count(type.shape) != 1) && type.dtype != DType::none) continue;
    needed[index(out)] = true;
    break;
  }
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node)
    if (std::ranges::any_of(node->outputs, [&](ValueId out) { return out != kNone && needed[index(out)]; }))
      for (ValueId in : node->inputs)
        if (in != kNone) needed[index(in)] = true;
  return needed;
}

// Operators between a trained parameter and the loss that have no gradient.
void collect_without_gradient(const Graph &graph, std::vector<Problem> &problems) {
  const std::vector<bool> trained = trained_values(graph), needed = needed_values(graph);
  const auto crossed = [&](ValueId id) { return id != kNone && trained[index(id)] && needed[index(id)]; };
  for (const Node &node : graph.nodes()) {
    const ops::Op *op = ops::find(node.op);
    if (op == nullptr || !is_core(node.op) || std::ranges::none_of(node.outputs, crossed)) continue;
    if (op->gradient == nullptr)
      problems.push_back({&node, "has no gradient"});
    else if (node.op == "FusedAttention" && has(node, 3) && crossed(node.inputs[3]))
      problems.push_back({&node, "has no gradient to a learned bias of its scores"});
  }
}

void require_none(const std::vector<Problem> &problems) {
  if (problems.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min(problems.size(), kMostNamed); ++i)
    list += fmt::format("{}{} at {} {}", i == 0 ? "" : ", ", problems[i].node->op, problems[i].node->name,
                        problems[i].reason);
  if (problems.size() > kMostNamed) list += fmt::format(", and {} more", problems.size() - kMostNamed);
  const Node &first = *problems.front().node;
  fail(Code::unsupported, first.name.empty() ? first.op : first.name, "{} operator{} cannot be trained: {}",
       problems.size(), problems.size() == 1 ? "" : "s", list);
}

// What could not be typed though no operator is missing: inferring it again says why.
void require_typed(const Graph &graph) {
  const auto typed = [&](ValueId id) { return id == kNone || graph.value(id).type.dtype != DType::none; };
  for (const Node &node : graph.nodes()) {
    if (std::ranges::all_of(node.outputs, typed) || !std::ranges::all_of(node.inputs, typed)) continue;
    const std::vector<Type> types = ops::infer(graph, node);
    fail(Code::unsupported, node.name.empty() ? node.op : node.name, "{} of the {} outputs of {} are known here",
         types.size(), node.outputs.size(), node.op);
  }
}

void say_what_was_split(Prepared &prepared) {
  for (const graph::Split &split : prepared.splits) {
    const auto finding = std::ranges::find(prepared.findings, split.name, &Finding::initializer);
    if (finding == prepared.findings.end()) continue;
    finding->reason += fmt::format("; split from {}, which several places read", split.original);
  }
}

// Initializers that BatchNormalization reads as the mean and variance of what it has seen, and nothing else reads.
std::set<std::string> statistics_of(const Graph &graph) {
  std::set<std::string> found, others;
  for (const Node &node : graph.nodes())
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNone || graph.value(node.inputs[i]).origin != graph::Origin::initializer) continue;
      (is_statistic(node, i) ? found : others).insert(graph.value(node.inputs[i]).name);
    }
  std::erase_if(found, [&](const std::string &name) { return others.contains(name); });
  return found;
}

}  // namespace

Prepared prepare(Graph graph, const LoadInitializer &load_from_file, const Choices &choices) {
  Prepared prepared;
  prepared.splits = split_merged(graph, load_from_file);
  const FileFacts facts = {.splits = prepared.splits, .statistics = statistics_of(graph)};
  FoldBudget budget(graph);
  const LoadInitializer load = [&](const std::string &name) {
    const auto split = std::ranges::find(prepared.splits, name, &graph::Split::name);
    graph::Array array = load_from_file(split == prepared.splits.end() ? name : split->original);
    budget.grant(array.stored_bytes());
    return array;
  };
  fold(graph, budget);
  const bool complete = !choices.loss || attach_loss(graph, *choices.loss);
  Judged judged = find_parameters(graph, load, choices, facts);
  prepared.findings = std::move(judged.findings);
  prepared.unmatched = std::move(judged.unmatched);
  say_what_was_split(prepared);
  fold(graph, budget);
  std::vector<Problem> problems;
  collect_without_core_form(graph, problems);
  if (!problems.empty()) collect_without_gradient(graph, problems);
  require_none(problems);
  require_typed(graph);
  require(complete, Code::unsupported, "loss_output",
          "the type of output {} depends on weights: no loss can be attached", graph.value(graph.outputs[0]).name);

  clean_up(graph);
  for (int round = 0; round < kMostFusions && fuse(graph); ++round) {
    fold(graph, budget);  // fusion computes with constants
    clean_up(graph);
  }
  order_parameters(graph);
  collect_without_gradient(graph, problems);
  require_none(problems);
  prepared.block_count = find_blocks(graph);
  graph::verify(graph);
  prepared.graph = std::move(graph);
  return prepared;
}

}  // namespace protrain::passes
