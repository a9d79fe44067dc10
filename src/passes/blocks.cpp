// Finds the repeated layers of a model from its list of nodes alone. Searches for the longest stretch of nodes that
// repeats with some period: each node has the operator, attributes and output types of the node one period later. Cuts
// the stretch into blocks where the fewest bytes cross.
#include <algorithm>
#include <functional>
#include <string>

#include "passes/passes.h"

namespace protrain::passes {

namespace {

using graph::Node;
using graph::NodeId;
using graph::ValueId;

constexpr std::size_t kShortestPeriod = 4;  // nodes; shorter repetitions are no layers

// Returns a hash of a node's operator, attributes and output types. Leaves out attributes that may differ between equal
// layers: keys of random numbers, and tensors.
std::size_t signature(const graph::Graph &graph, const Node &node) {
  std::string text = node.op + "(";
  for (const auto &[key, attribute] : node.attributes.items())
    if (key != "key" && !std::holds_alternative<graph::Array>(attribute))
      text += graph::Attributes({{key, attribute}}).print() + ",";
  for (ValueId out : node.outputs)
    if (out != ValueId::none) text += to_text(graph.value(out).type);
  return std::hash<std::string>{}(text);
}

// Nodes [begin, end) repeat with this period.
struct Stretch {
  std::size_t period = 0, begin = 0, end = 0;
  std::size_t count() const { return period == 0 ? 0 : (end - begin) / period; }
  std::size_t covered() const { return count() * period; }
};

// Returns the longest stretch that repeats with this period. It is a run of nodes that have the signature of the node
// one period later, and the `period` nodes after that run.
Stretch longest_with(const std::vector<std::size_t> &signatures, std::size_t period) {
  Stretch best{period, 0, 0};
  std::size_t run = 0;
  for (std::size_t i = 0; i + period < signatures.size(); ++i) {
    run = signatures[i] == signatures[i + period] ? run + 1 : 0;
    if (run >= period && run + period > best.end - best.begin) best = {period, i + 1 - run, i + 1 + period};
  }
  return best;
}

Stretch longest(const std::vector<std::size_t> &signatures) {
  Stretch best;
  for (std::size_t period = kShortestPeriod; period * 2 <= signatures.size(); ++period) {
    const Stretch stretch = longest_with(signatures, period);
    if (stretch.covered() > best.covered()) best = stretch;
  }
  return best;
}

// Returns for each node the bytes of the values that are live before it: an earlier node computes them, and this or a
// later node reads them.
std::vector<double> bytes_before(const graph::Graph &graph) {
  std::vector<double> change(graph.node_count() + 1, 0);
  std::vector<std::size_t> last_read(graph.value_count(), 0);
  for (std::size_t i = 0; i < graph.node_count(); ++i)
    for (ValueId in : graph.nodes()[i].inputs)
      if (in != ValueId::none) last_read[index(in)] = i;
  for (ValueId out : graph.outputs) last_read[index(out)] = graph.node_count();
  for (std::size_t i = 0; i < graph.node_count(); ++i)
    for (ValueId out : graph.nodes()[i].outputs) {
      if (out == ValueId::none || last_read[index(out)] <= i) continue;
      const graph::Type &type = graph.value(out).type;
      const auto bytes = static_cast<double>(byte_count(type.dtype, type.shape));
      change[i + 1] += bytes;
      if (last_read[index(out)] + 1 < change.size()) change[last_read[index(out)] + 1] -= bytes;
    }
  for (std::size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
  return change;
}

// Returns the first node of the first block. Among the positions that leave room for all blocks, takes the one at which
// the fewest bytes cross the borders of blocks.
std::size_t best_begin(const Stretch &stretch, const std::vector<double> &bytes) {
  std::size_t best = stretch.begin;
  double least = -1;
  for (std::size_t begin = stretch.begin; begin + stretch.covered() <= stretch.end; ++begin) {
    double crossing = 0;
    for (std::size_t i = 0; i <= stretch.count(); ++i) crossing += bytes[begin + i * stretch.period];
    if (least >= 0 && crossing >= least) continue;
    least = crossing;
    best = begin;
  }
  return best;
}

}  // namespace

int find_blocks(graph::Graph &graph) {
  std::vector<std::size_t> signatures;
  for (const Node &node : graph.nodes()) signatures.push_back(signature(graph, node));
  const Stretch stretch = longest(signatures);
  const std::size_t begin = best_begin(stretch, bytes_before(graph));
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const bool inside = i >= begin && i < begin + stretch.covered();
    graph.node(static_cast<NodeId>(i)).block = inside ? static_cast<std::int32_t>((i - begin) / stretch.period) : -1;
  }
  return static_cast<int>(stretch.count());
}

}  // namespace protrain::passes
