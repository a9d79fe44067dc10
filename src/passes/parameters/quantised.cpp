#include "passes/parameters/quantised.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace protrain::passes {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::Value;
using graph::ValueId;

constexpr const char *kMatMulNBits = "com.microsoft::MatMulNBits";
constexpr const char *kGather = "com.microsoft::GatherBlockQuantized";

// The indices of a node's inputs that hold quantised weights, scales and zero points.
struct QuantisedInputs {
  std::size_t weights = 0;  // the input's index; the number of inputs if no input holds weights
  std::size_t first_scale = 0, last_scale = 0;
};

std::optional<QuantisedInputs> quantised_inputs(const Node &node) {
  if (node.op == "DequantizeLinear") return QuantisedInputs{.weights = 0, .first_scale = 1, .last_scale = 2};
  if (node.op == "QuantizeLinear")
    return QuantisedInputs{.weights = node.inputs.size(), .first_scale = 1, .last_scale = 2};
  if (node.op == kMatMulNBits) return QuantisedInputs{.weights = 1, .first_scale = 2, .last_scale = 3};
  if (node.op == kGather) return QuantisedInputs{.weights = 0, .first_scale = 2, .last_scale = 3};
  return std::nullopt;
}

// True for nodes that only move or cast the elements of their first input.
bool only_moves(const Node &node) {
  return one_of(node.op, {"Identity", "Reshape", "Transpose", "Cast", "Squeeze", "Unsqueeze", "Flatten", "Gather"});
}

// Finds out which initializers of a graph are quantised weights, scales and zero points.
class Quantisation {
 public:
  explicit Quantisation(const Graph &graph) : graph_(graph), readers_(graph.consumers()) {
    for (const Node &node : graph.nodes()) {
      const auto inputs = quantised_inputs(node);
      if (inputs && inputs->weights < node.inputs.size()) follow_weights(node, node.inputs[inputs->weights]);
    }
    for (const Node &node : graph.nodes())
      if (const auto inputs = quantised_inputs(node)) {
        const bool kept = inputs->weights < node.inputs.size() && is_weights(node.inputs[inputs->weights]);
        for (std::size_t i = inputs->first_scale; i <= inputs->last_scale && i < node.inputs.size(); ++i)
          follow_scale(node, node.inputs[i], kept);
      }
  }

  // Returns the findings, by initializer.
  const std::map<ValueId, Finding> &found() const { return found_; }
  bool is_read(ValueId id) const { return !readers_[index(id)].empty(); }

 private:
  // Returns the initializer whose elements the value holds, moved or cast. Returns ValueId::none if nodes of other
  // kinds computed the value.
  ValueId source_of(ValueId id) const {
    while (id != ValueId::none) {
      const Value &value = graph_.value(id);
      if (value.origin == Origin::initializer) return id;
      if (value.producer == NodeId::none || !only_moves(graph_.node(value.producer))) break;
      id = graph_.node(value.producer).inputs.at(0);
    }
    return ValueId::none;
  }

  bool is_weights(ValueId id) const {
    const auto found = found_.find(source_of(id));
    return found != found_.end() && found->second.parameter;
  }

  void follow_weights(const Node &node, ValueId id);
  void follow_scale(const Node &node, ValueId id, bool kept);
  void find(ValueId id, bool parameter, const std::string &what, const Node &node) {
    const std::string place = node.place();
    found_.emplace(id, Finding{.initializer = graph_.value(id).name,
                               .parameter = parameter,
                               .frozen = parameter,
                               .reason = what + " of " + place});
  }

  const Graph &graph_;
  const std::vector<std::vector<NodeId>> readers_;
  std::map<ValueId, Finding> found_;
};

void Quantisation::follow_weights(const Node &node, ValueId id) {
  const ValueId source = source_of(id);
  if (source == ValueId::none || is_float(graph_.value(source).type.dtype)) return;
  const bool packed = node.attributes.has("shape");
  const graph::Type &type = graph_.value(source).type;
  const Shape shape = packed ? node.attributes.integers("shape") : type.shape;
  const bool only_here = std::ranges::all_of(readers_[index(source)], [&](NodeId reader) {
    const Node &other = graph_.node(reader);
    const auto inputs = quantised_inputs(other);
    return only_moves(other) ||
           (inputs && inputs->weights < other.inputs.size() && other.inputs[inputs->weights] == source);
  });
  if (shape.size() < 2 || !only_here) return;
  std::string what = packed
                         ? fmt::format("{}int4{}", node.attributes.integer("signed", 0) != 0 ? "" : "u", to_text(shape))
                         : to_text(type);
  if (!packed && (node.op == kMatMulNBits || node.op == kGather))
    what = fmt::format("{}-bit", node.attributes.integer("bits", 4));
  find(source, true, "quantised weights, " + what + ",", node);
}

void Quantisation::follow_scale(const Node &node, ValueId id, bool kept) {
  const ValueId source = source_of(id);
  if (source == ValueId::none) return;
  const bool only_here =
      id == source && std::ranges::all_of(readers_[index(source)], [&](NodeId reader) {
        const Node &other = graph_.node(reader);
        const auto inputs = quantised_inputs(other);
        return inputs && inputs->weights < other.inputs.size() && is_weights(other.inputs[inputs->weights]);
      });
  const char *what = is_float(graph_.value(source).type.dtype) ? "scale" : "zero point";
  find(source, kept && only_here, what, node);
}

}  // namespace

void widen_late(Graph &graph) {
  const std::vector<Node> &nodes = graph.nodes();
  const auto maker = [&](ValueId id) { return id == ValueId::none ? NodeId::none : graph.value(id).producer; };
  std::vector<bool> stored(nodes.size()), late(nodes.size()), placed(nodes.size());
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    stored[n] = true;
    late[n] = nodes[n].op == "DequantizeLinear";
    for (ValueId in : nodes[n].inputs) {
      const NodeId made = maker(in);
      stored[n] = stored[n] && (in == ValueId::none || graph.value(in).origin != Origin::input) &&
                  (made == NodeId::none || stored[index(made)]);
      late[n] = late[n] || (made != NodeId::none && late[index(made)]);
    }
    late[n] = late[n] && stored[n];
  }
  struct Visit {
    std::size_t node, next_input;
  };
  std::vector<Node> ordered;
  std::vector<Visit> path;  // a stack of its own, because chains may be long
  const auto enter = [&](std::size_t n) {
    if (placed[n]) return;
    placed[n] = true;
    path.push_back({n, 0});
  };
  // Appends node n to `ordered`, after the late nodes whose results it needs. A late node is a DequantizeLinear, or
  // depends on one, and it does not depend on the model's inputs.
  const auto place = [&](std::size_t n) {
    enter(n);
    while (!path.empty()) {
      const Node &node = nodes[path.back().node];
      if (path.back().next_input == node.inputs.size()) {
        ordered.push_back(node);
        path.pop_back();
        continue;
      }
      const NodeId made = maker(node.inputs[path.back().next_input++]);
      if (made != NodeId::none && late[index(made)]) enter(index(made));
    }
  };
  for (std::size_t n = 0; n < nodes.size(); ++n)
    if (!late[n]) place(n);
  for (std::size_t n = 0; n < nodes.size(); ++n) place(n);  // the late nodes that only outputs of the graph need
  graph.set_nodes(std::move(ordered));
}

bool is_scale(const Node &node, std::size_t input) {
  return one_of(node.op, {"DequantizeLinear", "QuantizeLinear", "FakeQuantize"}) && input > 0;
}

std::vector<Finding> settle_quantised(Graph &graph, const LoadInitializer &load) {
  std::vector<Finding> findings;
  const Quantisation quantisation(graph);
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const auto id = static_cast<ValueId>(i);
    Value &value = graph.value(id);
    const auto found = quantisation.found().find(id);
    const bool settled = found != quantisation.found().end();
    if (value.origin != Origin::initializer || (is_float(value.type.dtype) && !settled)) continue;
    if (settled) findings.push_back(found->second);
    if (settled && found->second.parameter) {
      value.origin = Origin::parameter;
      value.frozen = true;
    } else if (quantisation.is_read(id)) {
      value.array = load(value.name).compact();
      value.origin = Origin::constant;
    }
  }
  return findings;
}

}  // namespace protrain::passes
