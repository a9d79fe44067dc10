#include "plan/outline.h"

#include <algorithm>

#include "plan/lives.h"
#include "plan/plan.h"

namespace protrain::plan {

namespace {

using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::ValueId;

// Returns the bytes that are live while each node runs, if every block keeps all activations that its backward reads.
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

Outline::Outline(const Graph &graph, const Durations &durations) {
  const Lives lives(graph);
  blocks.resize(static_cast<std::size_t>(count_blocks(graph)));
  for (std::size_t n = 0; n < graph.node_count(); ++n) {
    const Node &node = graph.nodes()[n];
    const double seconds = durations.run(static_cast<graph::NodeId>(n));
    const bool ahead = node.phase == Phase::forward;
    if (node.block < 0) {
      (ahead ? forward : backward) += seconds;
      continue;
    }
    Block &block = blocks[static_cast<std::size_t>(node.block)];
    (ahead ? block.forward : block.backward) += seconds;
    const auto is_cheap = [&](ValueId out) { return out != ValueId::none && lives.cheap(index(out)); };
    if (ahead && std::ranges::any_of(node.outputs, is_cheap)) block.again += seconds;
  }
  for (std::size_t v = 0; v < graph.value_count(); ++v) {
    if (!lives.saved(v)) continue;
    const int maker = graph.nodes()[lives.made(v)].block;
    if (lives.cheap(v)) blocks[static_cast<std::size_t>(maker)].cheap += lives.bytes(v);
    if (lives.owner(v) >= 0)
      blocks[static_cast<std::size_t>(lives.owner(v))].saved += lives.bytes(v);
    else
      (maker >= 0 ? blocks[static_cast<std::size_t>(maker)].border : outside) += lives.bytes(v);
  }
  std::vector<std::uint64_t> kept(blocks.size() + 1, outside);  // kept[b]: bytes of the first b blocks and of `outside`
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
