#include "draft/shown_outputs.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "grad/training.h"
#include "program/storage.h"

namespace protrain::draft {

namespace {

using graph::Graph;
using graph::Value;
using graph::ValueId;

constexpr const char *kOption = "keep_outputs";
constexpr const char *kLogProbabilities = "log_probabilities";

// `trained` is a parameter or an input of the graph that is trained. Returns the value of `graph` with the same name,
// or adds such a value if `graph` has none. Code::unsupported if the types differ, or if one is a parameter and the
// other is an input.
ValueId in_place_of(const Value &trained, Graph &graph) {
  const ValueId found = graph.find(trained.name);
  if (found == ValueId::none)
    return graph.add_value(
        {.name = trained.name, .type = trained.type, .origin = trained.origin, .array = {}, .frozen = trained.frozen});
  const Value &value = graph.value(found);
  require(
      value.type == trained.type && value.origin == trained.origin, Code::unsupported, kOption,
      "{} is {} in the graph that is trained, and {} where outputs are computed; leave out the outputs that need it",
      printable(trained.name), to_text(trained.type), to_text(value.type));
  return found;
}

// Gives `graph` the same parameters or inputs as the graph `trained`. `own` is one of the lists of `graph`: its
// parameters or its inputs. `wanted` is the same list of `trained`. Afterwards `own` has the names of `wanted`, in the
// same order. Throws Code::unsupported if `own` has a value whose name is not in `wanted`.
void align(const Graph &trained, const std::vector<ValueId> &wanted, Graph &graph, std::vector<ValueId> &own) {
  std::vector<ValueId> aligned;
  for (ValueId id : wanted) aligned.push_back(in_place_of(trained.value(id), graph));
  for (ValueId id : own)
    require(std::ranges::find(aligned, id) != aligned.end(), Code::unsupported, kOption,
            "the outputs need {}, which the graph that is trained does not have; leave out the outputs that need it",
            printable(graph.value(id).name));
  own = std::move(aligned);
}

}  // namespace

ShownOutputs shown_outputs(const Graph &graph, const Settings &settings) {
  std::vector<std::string> names;
  for (ValueId id : graph.outputs) names.push_back(graph.value(id).name);
  const bool adds = !settings.losses.empty() && settings.losses.front().kind == passes::Loss::Kind::dpo &&
                    std::ranges::find(names, kLogProbabilities) == names.end();
  if (adds) names.emplace_back(kLogProbabilities);
  for (const std::string &pattern : settings.keep_outputs)
    require(std::ranges::any_of(names, [&](const std::string &name) { return glob_match(pattern, name); }), Code::arg,
            kOption, "no output of the model matches '{}'; its outputs are {}", printable(pattern),
            printable(fmt::format("{}", fmt::join(names, ", "))));
  ShownOutputs shown;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!std::ranges::any_of(settings.keep_outputs, [&](const auto &one) { return glob_match(one, names[i]); }))
      continue;
    shown.names.push_back(names[i]);
    if (i < graph.outputs.size())
      shown.of_file.push_back(graph.outputs[i]);
    else
      shown.log_probabilities = true;
  }
  return shown;
}

void show_outputs(passes::PreparedModel &prepared, std::size_t shown, const passes::PreparedModel &trained) {
  Graph &graph = prepared.graph;
  graph.outputs.erase(graph.outputs.begin(), graph.outputs.end() - static_cast<std::ptrdiff_t>(shown));
  passes::for_evaluation(graph);
  const std::vector<ValueId> roots = program::storage_roots(graph);
  for (ValueId id : graph.outputs)
    require(graph.value(roots[graph::index(id)]).producer != graph::NodeId::none, Code::unsupported, kOption,
            "output {} is an input, a weight or a constant, or another shape of one; no node computes it",
            printable(graph.value(id).name));
  graph.drop_dead_nodes();
  grad::prune_unread_outputs(graph);
  align(trained.graph, trained.graph.parameters, graph, graph.parameters);
  align(trained.graph, trained.graph.inputs, graph, graph.inputs);
  if (prepared.block_count == trained.block_count) return;
  for (std::size_t i = 0; i < graph.node_count(); ++i) graph.node(static_cast<graph::NodeId>(i)).block = -1;
}

}  // namespace protrain::draft
