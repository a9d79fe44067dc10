// Finds the repeated layers of a model from its list of nodes alone. Searches for the longest stretch of nodes that
// repeats with some period: each node has the operator, attributes and output types of the node one period later. Cuts
// the stretch into blocks where the fewest bytes cross.
//   Nodes that several layers share can move before the first layer. Otherwise a first layer that also computes values
// for all layers, such as an attention mask, would be unlike the others.
#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <utility>

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

// Returns the longest stretch that repeats with this period. In the stretch each node has the signature of the node one
// period later, except for the last `period` nodes.
Stretch longest_with(const std::vector<std::size_t> &signatures, std::size_t period) {
  Stretch best{period, 0, 0};
  std::size_t run = 0;
  for (std::size_t i = 0; i + period < signatures.size(); ++i) {
    run = signatures[i] == signatures[i + period] ? run + 1 : 0;
    if (run >= period && run + period > best.end - best.begin) best = {period, i + 1 - run, i + 1 + period};
  }
  return best;
}

using Order = std::vector<std::size_t>;  // the indices of all nodes

// For each node, the nodes that it reads from, and those that read from it.
struct Neighbours {
  explicit Neighbours(const graph::Graph &graph) : before(graph.node_count()), after(graph.node_count()) {
    for (std::size_t i = 0; i < graph.node_count(); ++i)
      for (ValueId in : graph.nodes()[i].inputs) {
        if (in == ValueId::none || graph.value(in).producer == NodeId::none) continue;
        before[i].push_back(index(graph.value(in).producer));
        after[before[i].back()].push_back(i);
      }
  }
  // Returns all distances, in nodes, between a node and its last reader. A node with a distance longer than the period
  // is shared (see shared_early()). So if no node has the distance p, the same nodes are shared with the periods p and
  // p - 1.
  std::set<std::size_t> spans() const {
    std::set<std::size_t> found;
    for (std::size_t i = 0; i < after.size(); ++i)
      if (!after[i].empty()) found.insert(after[i].back() - i);
    return found;
  }
  std::vector<std::vector<std::size_t>> before, after;
};

// Returns an order of nodes in which each node that layers share comes early, right after the last node that it reads
// from. A node is shared if its last reader comes more than a period later, or if all its readers are shared.
Order shared_early(const Neighbours &neighbours, std::size_t period) {
  const std::size_t count = neighbours.before.size();
  std::vector<bool> shared(count);
  for (std::size_t i = count; i-- > 0;) {
    const std::vector<std::size_t> &readers = neighbours.after[i];
    shared[i] = !readers.empty() && (readers.back() > i + period ||
                                     std::ranges::all_of(readers, [&](std::size_t reader) { return shared[reader]; }));
  }
  // Node i moves right behind node place[i] - 1, after the nodes that moved there before it. If place[i] is 0, it moves
  // to the front.
  std::vector<std::size_t> place(count, 0), begins(count + 2, 0);
  for (std::size_t i = 0; i < count; ++i) {
    for (const std::size_t from : neighbours.before[i]) place[i] = std::max(place[i], place[from]);
    if (!shared[i]) place[i] = i + 1;
    ++begins[place[i] + 1];
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  Order order(count);
  for (std::size_t i = 0; i < count; ++i) order[begins[place[i]]++] = i;
  return order;
}

// Returns the longest stretch that repeats with any period, and the order of nodes in which it occurs. This is the
// graph's own order, unless another order has a longer stretch.
std::pair<Stretch, Order> longest(const graph::Graph &graph) {
  std::vector<std::size_t> signatures;
  for (const Node &node : graph.nodes()) signatures.push_back(signature(graph, node));
  std::pair<Stretch, Order> best;
  best.second.resize(signatures.size());
  std::iota(best.second.begin(), best.second.end(), std::size_t{0});
  for (std::size_t period = kShortestPeriod; period * 2 <= signatures.size(); ++period) {
    const Stretch stretch = longest_with(signatures, period);
    if (stretch.covered() > best.first.covered()) best.first = stretch;
  }
  const Neighbours neighbours(graph);
  const std::set<std::size_t> spans = neighbours.spans();
  Order order;
  std::vector<std::size_t> moved(signatures.size());
  for (std::size_t period = kShortestPeriod; period * 2 <= signatures.size(); ++period) {
    if (order.empty() || spans.contains(period)) {  // otherwise the same nodes are shared, and the order stays
      order = shared_early(neighbours, period);
      std::ranges::transform(order, moved.begin(), [&](std::size_t i) { return signatures[i]; });
    }
    const Stretch stretch = longest_with(moved, period);
    if (stretch.covered() > best.first.covered()) best = {stretch, order};
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
  const auto &[stretch, order] = longest(graph);
  std::vector<Node> nodes;
  for (const std::size_t i : order) nodes.push_back(graph.nodes()[i]);
  graph.set_nodes(std::move(nodes));
  const std::size_t begin = best_begin(stretch, bytes_before(graph));
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    const bool inside = i >= begin && i < begin + stretch.covered();
    graph.node(static_cast<NodeId>(i)).block = inside ? static_cast<std::int32_t>((i - begin) / stretch.period) : -1;
  }
  return static_cast<int>(stretch.count());
}

}  // namespace protrain::passes
