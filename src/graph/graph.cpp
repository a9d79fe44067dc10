// Graph: values, nodes, and the operations that keep them consistent as passes change them.
#include "graph/graph.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "base/error.h"

namespace protrain::graph {

std::string Graph::unique_name(const std::string &name) {
  const std::string base = name.empty() ? "value" : name;
  if (!by_name_.contains(base)) return base;
  for (int &suffix = suffixes_[base];;)
    if (std::string candidate = fmt::format("{}:{}", base, ++suffix); !by_name_.contains(candidate)) return candidate;
}

ValueId Graph::add_value(Value value) {
  value.name = unique_name(value.name);
  const auto id = static_cast<ValueId>(values_.size());
  by_name_.emplace(value.name, id);
  values_.push_back(std::move(value));
  return id;
}

ValueId Graph::add_constant(const std::string &name, Array array) {
  Value value{.name = name, .type = array.type(), .origin = Origin::constant};
  value.array = std::move(array);
  return add_value(std::move(value));
}

NodeId Graph::add_node(Node node, const std::vector<std::string> &output_names) {
  for (const std::string &name : output_names) node.outputs.push_back(add_value({.name = name}));
  return add_node(std::move(node));
}

NodeId Graph::add_node(Node node) {
  const auto id = static_cast<NodeId>(nodes_.size());
  for (ValueId out : node.outputs)
    if (out != ValueId::none) value(out).producer = id;
  nodes_.push_back(std::move(node));
  return id;
}

ValueId Graph::find(const std::string &name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? ValueId::none : found->second;
}

std::span<const ValueId> Graph::weights() const {
  const auto first = std::ranges::find_if(parameters, [&](ValueId id) { return value(id).origin == Origin::state; });
  return {parameters.begin(), first};
}

std::vector<std::vector<NodeId>> Graph::consumers() const {
  std::vector<std::vector<NodeId>> readers(values_.size());
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    for (ValueId in : nodes_[i].inputs)
      if (in != ValueId::none) readers[graph::index(in)].push_back(static_cast<NodeId>(i));
  return readers;
}

void Graph::replace_uses(ValueId from, ValueId to) {
  for (Node &node : nodes_) std::ranges::replace(node.inputs, from, to);
  std::ranges::replace(outputs, from, to);
}

void Graph::set_nodes(std::vector<Node> nodes) {
  for (Value &value : values_)
    if (value.origin == Origin::node) value.producer = NodeId::none;
  nodes_.clear();
  nodes_.reserve(nodes.size());
  for (Node &node : nodes) add_node(std::move(node));
}

void Graph::drop_dead_nodes() {
  std::vector<bool> needed(values_.size(), false);
  for (ValueId out : outputs) needed[graph::index(out)] = true;
  std::vector<Node> kept;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    const bool alive =
        std::ranges::any_of(node->outputs, [&](ValueId id) { return id != ValueId::none && needed[graph::index(id)]; });
    if (!alive) continue;
    for (ValueId in : node->inputs)
      if (in != ValueId::none) needed[graph::index(in)] = true;
    kept.push_back(std::move(*node));
  }
  std::ranges::reverse(kept);
  set_nodes(std::move(kept));
}

void Graph::sort() {
  // Sorts by Kahn's algorithm. Among the nodes that are ready, the one that stood first in the old order comes first.
  std::vector<std::vector<std::size_t>> followers(nodes_.size());
  std::vector<int> waiting(nodes_.size(), 0);
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    for (ValueId in : nodes_[i].inputs) {
      if (in == ValueId::none || value(in).producer == NodeId::none) continue;
      followers[graph::index(value(in).producer)].push_back(i);
      ++waiting[i];
    }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t i = 0; i < nodes_.size(); ++i)
    if (waiting[i] == 0) ready.push(i);
  std::vector<Node> sorted;
  while (!ready.empty()) {
    const std::size_t i = ready.top();
    ready.pop();
    for (std::size_t follower : followers[i])
      if (--waiting[follower] == 0) ready.push(follower);
    sorted.push_back(nodes_[i]);
  }
  if (sorted.size() < nodes_.size()) fail_cycle(waiting);
  set_nodes(std::move(sorted));
}

// Throws an error that names a cycle. Walks from an unsorted node to an unsorted producer of one of its inputs, and so
// on, until it comes to a node for the second time. waiting[i] counts the inputs of node i that have unsorted
// producers.
void Graph::fail_cycle(const std::vector<int> &waiting) const {
  std::size_t at = 0;
  while (waiting[at] == 0) ++at;
  std::vector<std::size_t> path;
  while (std::ranges::find(path, at) == path.end()) {
    path.push_back(at);
    for (ValueId in : nodes_[at].inputs) {
      const NodeId producer = in == ValueId::none ? NodeId::none : value(in).producer;
      if (producer != NodeId::none && waiting[graph::index(producer)] > 0) {
        at = graph::index(producer);
        break;
      }
    }
  }
  path.erase(path.begin(), std::ranges::find(path, at));
  std::ranges::reverse(path);
  std::string text = nodes_[path.back()].name;
  for (std::size_t i : path) text += " -> " + nodes_[i].name;
  fail(Code::graph, nodes_[at].name, "cycle: {}", text);
}

}  // namespace protrain::graph
