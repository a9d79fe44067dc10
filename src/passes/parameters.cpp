// What each float initializer is: a parameter if weights stand where it meets data, else a constant.
#include <algorithm>
#include <cmath>

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
using graph::Type;
using graph::Value;
using graph::ValueId;

constexpr std::uint64_t kLargestAngles = std::uint64_t{64} << 20;  // bytes of a table that is looked into

bool matches_any(const std::vector<std::string> &patterns, const std::string &name) {
  return std::ranges::any_of(patterns, [&](const std::string &pattern) { return glob_match(pattern, name); });
}

bool is_read(const Places &places, ValueId id) { return !places.readers(id).empty(); }

// A row [1, n] of zeros that is added to data: layers keep their biases as vectors [n], so it is a buffer.
bool is_row_of_zeros(const Value &value, const LoadInitializer &load) {
  const Shape &shape = value.type.shape;
  if (shape.size() != 2 || shape[0] != 1 || shape[1] < 2) return false;
  const graph::Array array = load(value.name).compact();
  return array.stored_count() == 1 && array.stored_double(0) == 0;
}

// Sines and cosines of positions, in halves of each row or in turn: their squares add up to one. A row that stands for
// padding may be zero.
bool is_sinusoidal(const graph::Array &table) {
  const std::int64_t width = table.shape().back();
  if (table.stored() != table.shape() || width < 4 || width % 2 != 0) return false;
  const std::int64_t half = width / 2, rows = table.stored_count() / width;
  std::int64_t read = 0;
  bool halves = true, turns = true;
  for (std::int64_t row = 0; row < rows && (halves || turns); ++row) {
    const auto squares = [&](std::int64_t i, std::int64_t j) {
      const double a = table.stored_double(row * width + i), b = table.stored_double(row * width + j);
      return a * a + b * b;
    };
    const bool padding = squares(0, half) == 0 && squares(1, half + 1) == 0;
    read += padding ? 0 : 1;
    const auto is_one = [&](double sum) { return std::abs(sum - (padding ? 0 : 1)) < 1e-5; };
    for (std::int64_t i = 0; i < half; ++i) {
      halves = halves && is_one(squares(i, half + i));
      turns = turns && is_one(squares(2 * i, 2 * i + 1));
    }
  }
  return read > 1 && (halves || turns);
}

// Tables of that kind are made, not learned. Files that are planned without their weights tell nothing.
bool holds_angles(const Value &value, const LoadInitializer &load) {
  const Type &type = value.type;
  if (type.shape.size() < 2 || byte_count(type.dtype, type.shape) > kLargestAngles) return false;
  try {
    return is_sinusoidal(load(value.name).compact());
  } catch (const Error &error) {
    if (error.code != Code::io) throw;
    return false;
  }
}

Finding judge(const Places &places, ValueId id, const Value &value, const LoadInitializer &load) {
  const std::string unmet = is_read(places, id) ? "meets no data" : "is read by nothing";
  Finding finding{
      .initializer = value.name, .parameter = false, .frozen = false, .reason = unmet, .tied_to = "", .turned = false};
  for (const Place &place : places.of(id)) {
    std::string reason;
    finding.parameter = places.holds_weights(place, reason);
    if (finding.parameter && places.is_sum(place) && is_row_of_zeros(value, load)) {
      finding.parameter = false;
      reason += ", a row of zeros where layers keep vectors";
    }
    if (finding.parameter && (places.is_sum(place) || places.is_table(place)) && holds_angles(value, load)) {
      finding.parameter = false;
      reason += ", sines and cosines of positions";
    }
    if (finding.parameter || finding.reason == unmet) finding.reason = reason;
    if (finding.parameter) break;
  }
  return finding;
}

void overrule(Finding &finding, const Type &type, const Choices &choices) {
  const std::string &name = finding.initializer;
  if (element_count(type.shape) == 0) {
    finding.parameter = false;
    finding.reason = "has no elements";
    return;
  }
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
    Finding finding = judge(places, id, graph.value(id), load);
    overrule(finding, graph.value(id).type, choices);
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
  tie(graph, choices.ties, findings);
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
