#include "draft/shown_outputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>

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

// Adds a parameter or an input of another graph to the same list of `trained`, in which state comes last. `trained` may
// have a value of this name that none of its nodes reads any more.
void adopt(const Value &value, Graph &trained, std::vector<ValueId> &list) {
  const bool is_state = value.origin == graph::Origin::state;
  ValueId id = trained.find(value.name);
  if (id == ValueId::none) id = trained.add_value({.name = value.name, .type = {}, .array = {}});
  trained.value(id).type = value.type;
  trained.value(id).origin = value.origin;
  trained.value(id).frozen = value.frozen;
  const auto first_state =
      std::ranges::find_if(list, [&](ValueId other) { return trained.value(other).origin == graph::Origin::state; });
  list.insert(is_state ? list.end() : first_state, id);
}

// Gives `graph` the same parameters or inputs as the graph `trained`. `own` is one of the lists of `graph`: its
// parameters or its inputs. `wanted` is the same list of `trained`. Afterwards `own` has the names of `wanted`, in the
// same order. If `own` has a value whose name is not in `wanted`, adds this value to `trained` if `adopts` is true, and
// throws Code::unsupported if not.
void align(Graph &trained, std::vector<ValueId> &wanted, Graph &graph, std::vector<ValueId> &own, bool adopts) {
  std::set<std::string> names;
  for (ValueId id : wanted) names.insert(trained.value(id).name);
  for (ValueId id : own) {
    if (names.contains(graph.value(id).name)) continue;
    require(adopts, Code::unsupported, kOption,
            "the outputs need {}, which the graph that is trained does not have; leave out the outputs that need it, "
            "or evaluate in a session of mode=eval",
            printable(graph.value(id).name));
    adopt(graph.value(id), trained, wanted);
  }
  own.clear();
  for (ValueId id : wanted) own.push_back(in_place_of(trained.value(id), graph));
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

void show_outputs(passes::PreparedModel &prepared, std::size_t shown, passes::PreparedModel &trained, bool adopts) {
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
  align(trained.graph, trained.graph.parameters, graph, graph.parameters, adopts);
  align(trained.graph, trained.graph.inputs, graph, graph.inputs, adopts);
  if (prepared.block_count == trained.block_count) return;
  for (std::size_t i = 0; i < graph.node_count(); ++i) graph.node(static_cast<graph::NodeId>(i)).block = -1;
}

}  // namespace protrain::draft
