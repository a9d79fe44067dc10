// Runs the passes in order. Throws one error that names everything that cannot be trained.
#include <fmt/format.h>
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "ops/control_flow.h"
#include "passes/add_adapters.h"
#include "passes/attach_loss.h"
#include "passes/canonical/canonical.h"
#include "passes/pack_documents.h"
#include "passes/parameters/mend.h"
#include "passes/parameters/quantised.h"
#include "passes/parameters/sizes.h"
#include "passes/parameters/split.h"
#include "passes/problems.h"

namespace protrain::passes {

namespace {

constexpr int kMostFusions = 5;

void say_what_was_split(PreparedModel &prepared) {
  for (const graph::Split &split : prepared.splits) {
    const auto finding = std::ranges::find(prepared.findings, split.name, &Finding::initializer);
    if (finding == prepared.findings.end()) continue;
    finding->reason += split.readers.empty()
                           ? fmt::format("; equal to {}, so the exporter stored it once", split.original)
                           : fmt::format("; split from {}, which several places read", split.original);
  }
}

// Returns the names of initializers that only BatchNormalization reads, as running mean or variance.
std::set<std::string> statistics_of(const Graph &graph, const graph::Bodies &bodies) {
  std::set<std::string> found, others;
  const auto look_at = [&](const Graph &one) {
    for (const Node &node : one.nodes())
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == ValueId::none || one.value(node.inputs[i]).origin != graph::Origin::initializer) continue;
        if (ops::is_control_flow(node.op)) continue;  // the nodes of its bodies count instead
        (is_statistic(node, i) ? found : others).insert(one.value(node.inputs[i]).name);
      }
  };
  look_at(graph);
  for (const graph::Body &body : bodies) look_at(body.graph);
  std::erase_if(found, [&](const std::string &name) { return others.contains(name); });
  return found;
}

// Removes sequences of tensors from the graph's outputs, because no node computes a sequence after fold(). Throws if
// one of the last `shown` outputs, which the user asked for, is a sequence, or if no output is left.
void leave_out_sequences(Graph &graph, std::size_t shown) {
  const auto is_sequence = [&](ValueId id) {
    return graph.value(id).origin == graph::Origin::node && graph.value(id).producer == graph::NodeId::none;
  };
  const auto kept = graph.outputs.end() - static_cast<std::ptrdiff_t>(shown);
  if (const auto asked = std::find_if(kept, graph.outputs.end(), is_sequence); asked != graph.outputs.end())
    fail(Code::unsupported, "keep_outputs", "the output {} is a sequence; only tensors can be computed",
         printable(graph.value(*asked).name));
  std::erase_if(graph.outputs, is_sequence);
  require(!graph.outputs.empty(), Code::unsupported, "outputs", "all outputs are sequences; expected a tensor");
}

// Returns the wider integer type in which a session holds an input, or the type itself.
DType held_as(DType dtype) {
  if (dtype == DType::i8 || dtype == DType::u8 || dtype == DType::i16 || dtype == DType::u16) return DType::i32;
  return dtype == DType::u32 ? DType::i64 : dtype;
}

// Returns `id` and all values that are made from it by only moving its elements. Returns an empty list if a node other
// than a Cast computes with one of these values, or if one is an output of the graph.
std::vector<ValueId> only_cast(const Graph &graph, const std::vector<std::vector<graph::NodeId>> &readers, ValueId id) {
  std::vector<ValueId> values = {id};
  for (std::size_t at = 0; at < values.size(); ++at) {
    const ValueId value = values[at];
    if (std::ranges::find(graph.outputs, value) != graph.outputs.end()) return {};
    for (const graph::NodeId reader : readers[index(value)]) {
      const graph::Node &node = graph.node(reader);
      if (node.op == "Cast") continue;
      const bool moves = ops::is_alias(node) || one_of(node.op, {"Identity", "Transpose", "Slice"});
      if (!moves || std::ranges::count(node.inputs, value) != 1 || node.inputs[0] != value) return {};
      values.push_back(node.outputs[0]);
    }
  }
  return values;
}

// Gives inputs of narrow integers, such as the bytes of an image, a wider type that devices compute with. The numbers
// stay the same, and the session converts the data. An input keeps its type if a node other than a Cast computes with
// it, because such a node could give other results: narrow integers wrap around earlier.
void widen_integer_inputs(Graph &graph) {
  const std::vector<std::vector<graph::NodeId>> readers = graph.consumers();
  for (const ValueId id : graph.inputs) {
    const DType held = held_as(graph.value(id).type.dtype);
    if (held == graph.value(id).type.dtype) continue;
    for (const ValueId value : only_cast(graph, readers, id)) graph.value(value).type.dtype = held;
  }
}

// Replaces each output that `numbers` names by the same number without axes. Leaves the last `shown` outputs alone.
void drop_axes(Graph &graph, const std::set<std::string> &numbers, std::size_t shown) {
  for (std::size_t i = 0; i + shown < graph.outputs.size(); ++i) {
    const ValueId id = graph.outputs[i];
    const std::string name = graph.value(id).name;
    const Type type = graph.value(id).type;
    if (!numbers.contains(name) || !is_float(type.dtype) || may_be_loss(type) || element_count(type.shape) != 1)
      continue;
    const ValueId number = graph.add_value({.name = name_of_number(name), .type = {type.dtype, {}}, .array = {}});
    graph.add_node(
        {.op = "Reshape", .name = name, .attributes = {{"shape", Shape{}}}, .inputs = {id}, .outputs = {number}});
    graph.outputs[i] = number;
  }
}

// Removes all outputs except the loss and the last `shown` ones. Nodes that only the other outputs need are removed
// too, so their operators need not be trainable. Changes nothing if it is not known which output is the loss.
void keep_loss_alone(Graph &graph, const std::set<std::string> &numbers, std::size_t shown) {
  drop_axes(graph, numbers, shown);
  for (std::size_t i = 0; i + shown < graph.outputs.size(); ++i) {
    const ValueId id = graph.outputs[i];
    const Type type = graph.value(id).type;
    if (type.dtype == DType::none) return;  // it may be the loss, behind an operator that is refused
    if (type.dtype != DType::f32 || !may_be_loss(type)) continue;
    return keep_outputs(graph, {id}, shown);
  }
}

// True if the file shows that its exporter has not merged equal tensors: for each tensor that the exporter declares,
// the file holds the tensor or a value computed from the tensor. In such a file, a vector that several nodes read is
// shared in the model too. Ignores the counters of PyTorch's BatchNorm (num_batches_tracked), which no file holds.
bool holds_all_declared(const Graph &graph, const graph::FileDeclarations &declared) {
  std::set<std::string> held;
  for (const auto &[name, from] : declared.folded_from) held.insert(from.begin(), from.end());
  for (const graph::Value &value : graph.values())
    if (value.origin == graph::Origin::initializer) held.insert(value.name);
  const auto is_held = [&](const auto &kind) {
    return kind.first.ends_with("num_batches_tracked") || held.contains(kind.first);
  };
  return !declared.kinds.empty() && std::ranges::all_of(declared.kinds, is_held);
}

// Turns the graph's float64 values into float32. Returns true if there were any. Throws if a trained parameter is
// float64, because its gradient would be float64 too.
bool replace_doubles(Graph &graph) {
  if (!doubles_to_floats(graph)) return false;
  for (const ValueId id : graph.parameters)
    require(graph.value(id).frozen || graph.value(id).type.dtype != DType::f64, Code::unsupported, graph.value(id).name,
            "the file holds it in float64 and computes in float32, so it cannot be trained; convert it to float32, or "
            "name it by frozen");
  return true;
}

}  // namespace

bool may_be_loss(const Type &type) { return is_float(type.dtype) && type.shape.empty(); }

PreparedModel prepare(Graph graph, const LoadInitializer &load_from_file, const Choices &choices) {
  PreparedModel prepared;
  Problems problems;
  const graph::Bodies bodies = set_batch_norm(graph, choices.bodies, choices.batch_norm);
  const std::vector<Finding> quantised = settle_quantised(graph, load_from_file);
  // Splits vectors that the exporter has merged. Splits none if the exporter's declarations show that it merged none,
  // or if the file describes its own training, because that training updates each initializer as a whole.
  if (!choices.declared.updated && !holds_all_declared(graph, choices.declared))
    prepared.splits = split_merged(graph, load_from_file, choices.declared.merged);
  const FileFacts facts = {.splits = prepared.splits, .statistics = statistics_of(graph, bodies)};
  FoldBudget budget(graph);
  const LoadInitializer load = [&](const std::string &name) {
    const auto split = std::ranges::find(prepared.splits, name, &graph::Split::name);
    graph::Array array = load_from_file(split == prepared.splits.end() ? name : split->original);
    budget.grant(array.stored_bytes());
    return array;
  };
  const std::vector<Finding> sizes = settle_sizes(graph, load);
  // Folds constants, and emits the nodes of bodies into the graph, because find_parameters() looks into no bodies.
  const std::map<ValueId, std::string> refused = fold(graph, budget, choices.bodies == nullptr ? nullptr : &bodies);
  leave_out_sequences(graph, choices.shown);
  widen_integer_inputs(graph);
  std::optional<std::string> loss_from =
      choices.losses.empty() ? "" : attach_losses(graph, choices.losses, choices.shown);
  const bool adds = std::ranges::any_of(choices.losses, &Loss::shows_log_probabilities);
  const std::size_t shown = choices.shown + (adds ? 1 : 0);
  Judgement judged = find_parameters(graph, load, choices, facts);
  prepared.findings = std::move(judged.findings);
  for (const std::vector<Finding> &settled : {sizes, quantised})
    prepared.findings.insert(prepared.findings.end(), settled.begin(), settled.end());
  prepared.unmatched = std::move(judged.unmatched);
  say_what_was_split(prepared);
  std::map<ValueId, std::string> refusals = fold(graph, budget);
  refusals.insert(refused.begin(), refused.end());
  keep_loss_alone(graph, choices.numbers, shown);
  problems.collect_without_core_form(graph, refusals);
  if (problems.any()) problems.collect_without_gradient(graph);
  problems.require_none();
  require(loss_from.has_value(), Code::unsupported, "loss_output",
          "the type of output {} depends on weights, so no loss can be computed from it",
          graph.value(graph.outputs[0]).name);
  prepared.loss_from = std::move(*loss_from);

  prepared.had_doubles = replace_doubles(graph);
  clean_up(graph);
  prepared.adapters = add_adapters(graph, choices, prepared.splits, prepared.findings);
  for (int round = 0; round < kMostFusions && fuse(graph); ++round) {
    fold(graph, budget);  // fusion adds nodes that compute with constants
    clean_up(graph);
  }
  if (!choices.packed.empty()) pack_documents(graph, choices.packed);
  widen_late(graph);
  prepared.block_count = find_blocks(graph);
  order_parameters(graph);  // after find_blocks(), which may move nodes
  problems.collect_without_gradient(graph);
  problems.require_none();
  graph::verify(graph);
  prepared.graph = std::move(graph);
  return prepared;
}

}  // namespace protrain::passes
