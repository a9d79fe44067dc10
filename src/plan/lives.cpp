#include "plan/lives.h"

#include <algorithm>

#include "ops/op.h"

namespace protrain::plan {

namespace {

using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::Phase;
using graph::ValueId;

constexpr int kUnset = -2, kShared = -1;

// A value is cheap to recompute if its node takes at most kCheapFlops flops, and reads and writes at most kCheapTraffic
// bytes, for each byte that it makes.
constexpr double kCheapFlops = 8, kCheapTraffic = 8;

}  // namespace

Lives::Lives(const Graph &graph)
    : graph_(graph),
      root_(graph.value_count()),
      owner_(graph.value_count(), kUnset),
      made_(graph.value_count(), 0),
      last_(graph.value_count(), 0),
      backward_(graph.value_count(), false),
      cheap_(graph.value_count(), false) {
  for (std::size_t v = 0; v < root_.size(); ++v) root_[v] = v;
  for (std::size_t n = 0; n < graph.node_count(); ++n) visit(n);
  for (const Node &node : graph.nodes())
    if (node.phase == Phase::forward && node.block >= 0 && makes_cheap(node))
      for (ValueId out : node.outputs)
        if (out != ValueId::none) cheap_[index(out)] = saved(index(out)) && owner_[index(out)] == node.block;
}

std::uint64_t Lives::bytes(std::size_t v) const {
  const graph::Type &type = graph_.values()[v].type;
  return byte_count(type.dtype, type.shape);
}

bool Lives::computed(std::size_t v) const {
  const graph::Value &value = graph_.values()[v];
  return root_[v] == v && value.origin == Origin::node && value.producer != graph::NodeId::none;
}

bool Lives::saved(std::size_t v) const {
  return computed(v) && graph_.node(graph_.values()[v].producer).phase == Phase::forward && backward_[v];
}

// True if the node's saved outputs are cheap to recompute: the node takes little work, and backward still has its
// inputs. Backward has an input if the input is saved, or if no node computes it. An input that is itself cheap counts
// as saved.
bool Lives::makes_cheap(const Node &node) const {
  const bool inputs_stay = std::ranges::all_of(node.inputs, [&](ValueId in) {
    return in == ValueId::none || !computed(root_[index(in)]) || saved(root_[index(in)]);
  });
  if (!inputs_stay || ops::find(node.op) == nullptr) return false;
  double made = 0;
  for (ValueId out : node.outputs)
    if (out != ValueId::none && saved(index(out))) made += static_cast<double>(bytes(index(out)));
  if (made == 0) return false;
  const ops::Cost cost = ops::cost(graph_, node);
  return cost.flops <= kCheapFlops * made && cost.bytes <= kCheapTraffic * made;
}

void Lives::visit(std::size_t n) {
  const Node &node = graph_.nodes()[n];
  if (ops::is_alias(node)) root_[index(node.outputs[0])] = root_[index(node.inputs[0])];
  for (ValueId in : node.inputs)
    if (in != ValueId::none) touch(root_[index(in)], n);
  for (ValueId out : node.outputs) {
    if (out == ValueId::none) continue;
    if (root_[index(out)] == index(out)) made_[index(out)] = n;
    touch(root_[index(out)], n);
  }
}

void Lives::touch(std::size_t v, std::size_t n) {
  const Node &node = graph_.nodes()[n];
  last_[v] = n;
  if (node.phase == Phase::backward) {
    backward_[v] = true;
    return;
  }
  owner_[v] = owner_[v] == kUnset || owner_[v] == node.block ? node.block : kShared;
}

}  // namespace protrain::plan
