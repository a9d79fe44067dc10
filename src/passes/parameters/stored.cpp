#include "passes/parameters/stored.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "ops/stored.h"

namespace protrain::passes {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::Value;
using graph::ValueId;

bool is_narrow(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16; }

// Marks two kinds of nodes. Stored nodes depend on frozen weights and constants alone. Widened nodes are the stored
// nodes that turn stored weights into floats, and all stored nodes behind these.
class StoredNodes {
 public:
  explicit StoredNodes(const Graph &graph) : graph_(graph), stored_(graph.node_count()), widened_(graph.node_count()) {
    for (std::size_t n = 0; n < graph.node_count(); ++n) {
      const Node &node = graph.nodes()[n];
      stored_[n] = !node.inputs.empty() && std::ranges::all_of(node.inputs, [&](ValueId in) { return is_stored(in); });
      const bool behind = std::ranges::any_of(node.inputs, [&](ValueId in) { return is_widened(in); });
      widened_[n] = stored_[n] && (behind || widens(node));
    }
  }

  // Returns the node that makes the value, if that node is a widened node (see StoredNodes); else nullptr.
  const Node *maker(ValueId id) const { return is_widened(id) ? &graph_.node(graph_.value(id).producer) : nullptr; }
  bool is_widened(NodeId node) const { return widened_[index(node)]; }
  bool widens(const Node &node) const {
    if (node.op == "DequantizeLinear") return true;
    return node.op == "Cast" && is_narrow(graph_.value(node.inputs[0]).type.dtype) &&
           node.attributes.text("to", "") == name_of(DType::f32);
  }

 private:
  bool is_stored(ValueId id) const {
    if (id == ValueId::none) return true;
    const Value &value = graph_.value(id);
    if (value.origin == Origin::node) return value.producer != NodeId::none && stored_[index(value.producer)];
    return value.origin == Origin::constant || value.frozen;
  }
  bool is_widened(ValueId id) const {
    if (id == ValueId::none) return false;
    const NodeId made_by = graph_.value(id).producer;
    return made_by != NodeId::none && widened_[index(made_by)];
  }
  const Graph &graph_;
  std::vector<bool> stored_, widened_;
};

ValueId add_like(Graph &graph, ValueId id, DType dtype) {
  Value value;
  value.name = graph.value(id).name;
  value.type = {dtype, graph.value(id).type.shape};
  return graph.add_value(std::move(value));
}

// Moves each Cast of stored weights behind the nodes that only move the weights' elements. So, for example, the rows of
// an embedding are gathered in 16 bits, before the Cast.
void move_before_casting(Graph &graph) {
  const StoredNodes stored(graph);
  std::vector<Node> nodes;
  std::map<ValueId, Node> casts;  // by result
  for (Node node : graph.nodes()) {
    const auto cast = ops::only_moves(node.op) ? casts.find(node.inputs[0]) : casts.end();
    if (cast == casts.end()) {
      if (node.op == "Cast" && stored.widens(node) && stored.maker(node.outputs[0]) != nullptr)
        casts.emplace(node.outputs[0], node);
      nodes.push_back(std::move(node));
      continue;
    }
    Node behind = cast->second;
    behind.block = node.block;
    behind.phase = node.phase;
    behind.outputs = node.outputs;
    node.inputs[0] = behind.inputs[0];
    node.outputs = {add_like(graph, behind.outputs[0], graph.value(node.inputs[0]).type.dtype)};
    behind.inputs = node.outputs;
    if (stored.maker(behind.outputs[0]) != nullptr) casts.emplace(behind.outputs[0], behind);
    nodes.push_back(std::move(node));
    nodes.push_back(std::move(behind));
  }
  graph.set_nodes(std::move(nodes));
}

class Placing {
 public:
  explicit Placing(Graph &graph) : graph_(graph), before_(graph), stored_(before_) {}

  void run() {
    const std::set<ValueId> outputs(before_.outputs.begin(), before_.outputs.end());
    for (std::size_t n = 0; n < before_.node_count(); ++n) {
      const Node &node = before_.nodes()[n];
      const bool makes_output = std::ranges::any_of(node.outputs, [&](ValueId out) { return outputs.contains(out); });
      if (makes_output || !stored_.is_widened(static_cast<NodeId>(n))) keep(node);
    }
    graph_.set_nodes(std::move(ordered_));
  }

 private:
  using Copies = std::map<ValueId, ValueId>;  // by widened value: its copy

  void keep(Node node) {
    for (const ValueId in : std::vector(node.inputs))
      if (const Node *maker = stored_.maker(in);
          maker != nullptr && stored_.widens(*maker) && ops::takes_stored(before_, node, *maker))
        ops::take_stored(node, *maker);
    widen_inputs(node);
    ordered_.push_back(std::move(node));
  }

  // Emits copies of the nodes that make the widened inputs of `reader`, and of the widened nodes before these. Then
  // `reader` reads the copies. Readers in the same block and phase share copies.
  void widen_inputs(Node &reader) {
    Copies own;
    Copies &made = reader.block >= 0 ? made_[{reader.phase, reader.block}] : own;
    std::set<ValueId> expanded;  // values whose makers' inputs are already copied, or pending
    std::vector<ValueId> pending(reader.inputs.rbegin(), reader.inputs.rend());
    while (!pending.empty()) {
      const ValueId at = pending.back();
      const Node *maker = made.contains(at) ? nullptr : stored_.maker(at);
      if (maker != nullptr && expanded.insert(at).second) {
        pending.insert(pending.end(), maker->inputs.rbegin(), maker->inputs.rend());
        continue;
      }
      pending.pop_back();
      if (maker != nullptr) copy(*maker, reader, made);
    }
    use(made, reader);
  }

  // Emits a copy of a node that makes widened values, for use by `reader`. `made` has the copies of its inputs already.
  void copy(const Node &maker, const Node &reader, Copies &made) {
    Node node = maker;
    node.block = reader.block;
    node.phase = reader.phase;
    use(made, node);
    for (ValueId &out : node.outputs)
      if (out != ValueId::none) out = made[out] = add_like(graph_, out, graph_.value(out).type.dtype);
    ordered_.push_back(std::move(node));
  }

  static void use(const Copies &made, Node &node) {
    for (ValueId &in : node.inputs)
      if (const auto found = made.find(in); found != made.end()) in = found->second;
  }

  Graph &graph_;
  const Graph before_;
  const StoredNodes stored_;
  std::vector<Node> ordered_;
  std::map<std::pair<graph::Phase, std::int32_t>, Copies> made_;  // by phase and block
};

}  // namespace

void store_frozen(Graph &graph, const std::function<DType(const std::string &parameter)> &stored_as) {
  std::vector<Node> nodes;
  for (const ValueId id : graph.weights()) {
    const DType dtype = graph.value(id).type.dtype;
    if (!graph.value(id).frozen || dtype != DType::f32) continue;
    const DType narrow = stored_as(graph.value(id).name);
    if (!is_narrow(narrow)) continue;
    const ValueId floats = add_like(graph, id, dtype);
    graph.replace_uses(id, floats);
    graph.value(id).type.dtype = narrow;
    nodes.push_back({.op = "Cast",
                     .name = graph.value(id).name,
                     .attributes = {{"to", std::string(name_of(dtype))}},
                     .inputs = {id},
                     .outputs = {floats}});
  }
  if (nodes.empty()) return;
  nodes.insert(nodes.end(), graph.nodes().begin(), graph.nodes().end());
  graph.set_nodes(std::move(nodes));
  graph::verify(graph);
}

void widen_inside(Graph &graph) {
  move_before_casting(graph);
  Placing(graph).run();
  graph::verify(graph);
}

}  // namespace protrain::passes
