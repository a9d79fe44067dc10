// What each float initializer is: a parameter if weights stand where it meets data, else a constant.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "passes/mend.h"
#include "passes/passes.h"
#include "passes/places.h"

namespace protrain::passes {

namespace {

using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::Value;
using graph::ValueId;

bool matches_any(const std::vector<std::string> &patterns, const std::string &name) {
  return std::ranges::any_of(patterns, [&](const std::string &pattern) { return glob_match(pattern, name); });
}

bool is_read(const Places &places, ValueId id) { return !places.readers(id).empty(); }

Finding judge(const Places &places, ValueId id, const std::string &name) {
  const std::string unmet = is_read(places, id) ? "meets no data" : "is read by nothing";
  Finding finding{.initializer = name, .parameter = false, .frozen = false, .reason = unmet, .tied_to = ""};
  for (const Place &place : places.of(id)) {
    std::string reason;
    finding.parameter = places.holds_weights(place, reason);
    if (finding.parameter || finding.reason == unmet) finding.reason = reason;
    if (finding.parameter) break;
  }
  return finding;
}

void overrule(Finding &finding, const Choices &choices) {
  const std::string &name = finding.initializer;
  if (!finding.parameter && matches_any(choices.trainable, name)) {
    finding.parameter = true;
    finding.reason = "named by the option `trainable`";
  }
  finding.frozen = finding.parameter && matches_any(choices.frozen, name);
}

void require_used(const std::vector<std::string> &patterns, const std::vector<Finding> &findings, const char *option) {
  for (const std::string &pattern : patterns) {
    const bool used = std::ranges::any_of(findings, [&](const Finding &finding) {
      return finding.parameter && glob_match(pattern, finding.initializer);
    });
    require(used, Code::arg, option, "the pattern \"{}\" matches no initializer that can be a parameter",
            printable(pattern));
  }
}

void make_constant(Graph &graph, ValueId id, const LoadInitializer &load) {
  Value &value = graph.value(id);
  graph::Array array = load(value.name);
  require(array.type() == value.type, Code::internal, value.name, "loaded as {}, but the graph says {}",
          to_text(array.type()), to_text(value.type));
  value.array = array.compact();
  value.origin = Origin::constant;
}

}  // namespace

std::vector<Finding> find_parameters(Graph &graph, const LoadInitializer &load, const Choices &choices) {
  std::vector<Finding> findings;
  const Places places(graph);
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const auto id = static_cast<ValueId>(i);
    if (graph.value(id).origin != Origin::initializer) continue;
    Finding finding = judge(places, id, graph.value(id).name);
    overrule(finding, choices);
    if (finding.parameter) {
      graph.value(id).origin = Origin::parameter;
      graph.value(id).frozen = finding.frozen;
    } else if (is_read(places, id)) {
      make_constant(graph, id, load);
    }
    findings.push_back(std::move(finding));
  }
  require_used(choices.trainable, findings, "trainable");
  require_used(choices.frozen, findings, "frozen");
  retie_transposes(graph, load, findings);
  order_parameters(graph);
  return findings;
}

void order_parameters(Graph &graph) {
  graph.parameters.clear();
  std::vector<bool> met(graph.value_count(), false);
  for (const Node &node : graph.nodes())
    for (ValueId in : node.inputs) {
      if (in == ValueId::none || met[index(in)] || graph.value(in).origin != Origin::parameter) continue;
      met[index(in)] = true;
      graph.parameters.push_back(in);
    }
}

}  // namespace protrain::passes
