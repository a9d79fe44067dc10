#include "plan/outline.h"

#include <algorithm>

#include "plan/plan.h"

namespace protrain::plan {

namespace {

using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::Phase;
using graph::ValueId;

constexpr int kUnset = -2, kShared = -1;

// What becomes of each value that a node computes, by the value whose bytes it is (Reshape makes another name).
class Lives {
 public:
  explicit Lives(const Graph &graph)
      : graph_(graph),
        root_(graph.value_count()),
        owner_(graph.value_count(), kUnset),
        made_(graph.value_count(), 0),
        last_(graph.value_count(), 0),
        backward_(graph.value_count(), false) {
    for (std::size_t v = 0; v < root_.size(); ++v) root_[v] = v;
    for (std::size_t n = 0; n < graph.node_count(); ++n) visit(n);
  }

  std::uint64_t bytes(std::size_t v) const {
    const graph::Type &type = graph_.values()[v].type;
    return byte_count(type.dtype, type.shape);
  }
  // Made by a forward node, read by a backward one.
  bool saved(std::size_t v) const {
    return computed(v) && graph_.node(graph_.values()[v].producer).phase == Phase::forward && backward_[v];
  }
  bool computed(std::size_t v) const {
    const graph::Value &value = graph_.values()[v];
    return root_[v] == v && value.origin == Origin::node && value.producer != graph::NodeId::none;
  }
  int owner(std::size_t v) const { return owner_[v]; }  // the one block whose forward touches it, or kShared
  std::size_t made(std::size_t v) const { return made_[v]; }
  std::size_t last(std::size_t v) const { return last_[v]; }

 private:
  void visit(std::size_t n) {
    const Node &node = graph_.nodes()[n];
    if (node.op == "Reshape") root_[index(node.outputs[0])] = root_[index(node.inputs[0])];
    for (ValueId in : node.inputs)
      if (in != ValueId::none) touch(root_[index(in)], n, node);
    for (ValueId out : node.outputs) {
      if (out == ValueId::none) continue;
      if (root_[index(out)] == index(out)) made_[index(out)] = n;
      touch(root_[index(out)], n, node);
    }
  }

  void touch(std::size_t v, std::size_t n, const Node &node) {
    last_[v] = n;
    if (node.phase == Phase::backward) {
      backward_[v] = true;
      return;
    }
    owner_[v] = owner_[v] == kUnset || owner_[v] == node.block ? node.block : kShared;
  }

  const Graph &graph_;
  std::vector<std::size_t> root_;
  std::vector<int> owner_;
  std::vector<std::size_t> made_, last_;  // nodes
  std::vector<bool> backward_;
};

// Live bytes after each node where every block keeps what it saves.
std::vector<std::uint64_t> live_bytes(const Graph &graph, const Lives &lives) {
  std::vector<std::int64_t> change(graph.node_count() + 1, 0);
  for (std::size_t v = 0; v < graph.value_count(); ++v) {
    if (!lives.computed(v)) continue;
    change[lives.made(v)] += static_cast<std::int64_t>(lives.bytes(v));
    change[lives.last(v) + 1] -= static_cast<std::int64_t>(lives.bytes(v));
  }
  std::vector<std::uint64_t> live;
  std::int64_t now = 0;
  for (std::size_t n = 0; n < graph.node_count(); ++n) live.push_back(static_cast<std::uint64_t>(now += change[n]));
  return live;
}

std::uint64_t beyond(std::uint64_t bytes, std::uint64_t base) { return bytes - std::min(bytes, base); }

}  // namespace

Outline::Outline(const Graph &graph, const Clock &clock) {
  int count = 0;
  for (const Node &node : graph.nodes()) count = std::max(count, node.block + 1);
  blocks.resize(static_cast<std::size_t>(count));
  for (std::size_t n = 0; n < graph.node_count(); ++n) {
    const Node &node = graph.nodes()[n];
    const bool ahead = node.phase == Phase::forward;
    double &seconds = node.block < 0 ? (ahead ? forward : backward)
                                     : (ahead ? blocks[static_cast<std::size_t>(node.block)].forward
                                              : blocks[static_cast<std::size_t>(node.block)].backward);
    seconds += clock.run(static_cast<graph::NodeId>(n));
  }
  const Lives lives(graph);
  for (std::size_t v = 0; v < graph.value_count(); ++v) {
    if (!lives.saved(v)) continue;
    const int maker = graph.nodes()[lives.made(v)].block;
    if (lives.owner(v) >= 0)
      blocks[static_cast<std::size_t>(lives.owner(v))].saved += lives.bytes(v);
    else
      (maker >= 0 ? blocks[static_cast<std::size_t>(maker)].border : outside) += lives.bytes(v);
  }
  std::vector<std::uint64_t> kept(blocks.size() + 1, outside);  // before each block's end
  for (std::size_t b = 0; b < blocks.size(); ++b) kept[b + 1] = kept[b] + blocks[b].saved + blocks[b].border;
  const std::vector<std::uint64_t> live = live_bytes(graph, lives);
  for (std::size_t n = 0; n < graph.node_count(); ++n) {
    const int block = graph.nodes()[n].block;
    if (block >= 0) {
      const auto b = static_cast<std::size_t>(block);
      blocks[b].transient = std::max(blocks[b].transient, beyond(live[n], kept[b + 1]));
    } else {
      head_transient = std::max(head_transient, beyond(live[n], kept.back()));
    }
  }
  const std::vector<int> first_use = block_of_first_use(graph);
  for (graph::ValueId p : graph.parameters) block_of_parameter.push_back(first_use[index(p)]);
}

}  // namespace protrain::plan
