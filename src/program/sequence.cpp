#include "program/sequence.h"

#include <algorithm>
#include <optional>

#include "plan/lives.h"
#include "program/storage.h"

namespace protrain::program {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::Phase;
using graph::ValueId;
using plan::BlockMode;

// Sequencer orders the nodes of a step. A block that recomputes drops the values that no other block needs in forward.
// Just before backward first reads a dropped value of the block, forward nodes of the block run again and compute its
// dropped values. Backward may need only some of these values, so the nodes to run again are found from the values that
// backward reads.
class Sequencer {
 public:
  Sequencer(const Graph &graph, const std::vector<ValueId> &roots, const std::vector<BlockMode> &blocks)
      : graph_(graph), roots_(roots), blocks_(blocks), forward_(blocks.size()) {}

  Sequence run(const std::vector<ValueId> &wanted) {
    find_needed(wanted);
    find_leaving();
    std::vector<bool> recomputed(blocks_.size(), false);
    for (std::size_t i = 0; i < graph_.node_count(); ++i) {
      if (!needed_[i]) continue;
      if (graph_.nodes()[i].phase == Phase::backward)
        for (int block : recomputed_blocks_read(i))
          if (!recomputed[static_cast<std::size_t>(block)]) {
            recomputed[static_cast<std::size_t>(block)] = true;
            recompute(block);
          }
      sequence_.items.push_back({.node = static_cast<NodeId>(i)});
    }
    number_stages();
    return std::move(sequence_);
  }

 private:
  ValueId root(ValueId id) const { return roots_[index(id)]; }

  template <typename Do>
  void each(const std::vector<ValueId> &ids, Do &&act) const {
    for (ValueId id : ids)
      if (id != ValueId::none) act(root(id));
  }

  void find_needed(const std::vector<ValueId> &wanted) {
    std::vector<bool> read(graph_.value_count(), false);
    for (ValueId id : wanted)
      if (id != ValueId::none) read[index(id)] = true;
    needed_.assign(graph_.node_count(), false);
    for (std::size_t i = graph_.node_count(); i-- > 0;) {
      const Node &node = graph_.nodes()[i];
      needed_[i] =
          std::ranges::any_of(node.outputs, [&](ValueId id) { return id != ValueId::none && read[index(id)]; });
      if (!needed_[i]) continue;
      for (ValueId in : node.inputs)
        if (in != ValueId::none) read[index(in)] = true;
    }
  }

  // Finds the values that are dropped or swapped between forward and backward. These can only be values that backward
  // reads and that a single block's forward touches. The mode of this block then decides. All other values stay. Among
  // these are the values that cross the border between blocks, because recomputation starts from them.
  void find_leaving() {
    constexpr int kUnset = -2, kShared = -1;
    std::vector<int> &owner = sequence_.block;
    owner.assign(graph_.value_count(), kUnset);
    std::vector<bool> read_backward(graph_.value_count(), false);
    for (std::size_t i = 0; i < graph_.node_count(); ++i) {
      if (!needed_[i]) continue;
      const Node &node = graph_.nodes()[i];
      if (node.phase == Phase::backward) {
        each(node.inputs, [&](ValueId id) { read_backward[index(id)] = true; });
        continue;
      }
      const auto touch = [&](ValueId id) {
        int &at = owner[index(id)];
        at = at == kUnset || at == node.block ? node.block : kShared;
      };
      each(node.inputs, touch);
      each(node.outputs, touch);
      if (node.block >= 0) forward_[static_cast<std::size_t>(node.block)].push_back(static_cast<NodeId>(i));
    }
    sequence_.mode.assign(graph_.value_count(), BlockMode::keep);
    dropped_.assign(graph_.value_count(), false);
    for (std::size_t v = 0; v < graph_.value_count(); ++v) {
      const bool computed = graph_.value(static_cast<ValueId>(v)).origin == Origin::node && roots_[v] == ValueId(v);
      if (!computed) owner[v] = kShared;
      if (owner[v] >= 0 && read_backward[v]) sequence_.mode[v] = mode_of(v, owner[v]);
      dropped_[v] = sequence_.mode[v] == BlockMode::recompute;
    }
  }

  BlockMode mode_of(std::size_t root, int block) {
    const BlockMode mode = blocks_[static_cast<std::size_t>(block)];
    if (mode != BlockMode::selective) return mode;
    if (!lives_) lives_.emplace(graph_);
    return lives_->cheap(root) ? BlockMode::recompute : BlockMode::keep;
  }

  std::vector<int> recomputed_blocks_read(std::size_t node) const {
    std::vector<int> found;
    each(graph_.nodes()[node].inputs, [&](ValueId id) {
      if (sequence_.mode[index(id)] == BlockMode::recompute) found.push_back(sequence_.block[index(id)]);
    });
    std::ranges::sort(found);
    return found;
  }

  // Repeats the forward nodes that make the block's dropped values, starting from values that are still in memory.
  void recompute(int block) {
    std::vector<Item> items;
    const std::vector<NodeId> &forward = forward_[static_cast<std::size_t>(block)];
    for (auto id = forward.rbegin(); id != forward.rend(); ++id) {
      const Node &node = graph_.node(*id);
      bool makes = false;
      each(node.outputs, [&](ValueId out) { makes |= dropped_[index(out)]; });
      if (!makes) continue;
      items.push_back({.node = *id, .again = true});
      // Drops no further values in a selective block. Each input of a cheap node there is either kept, or cheap itself
      // and dropped already.
      if (blocks_[static_cast<std::size_t>(block)] == BlockMode::selective) continue;
      each(node.inputs, [&](ValueId in) {  // values that only this block uses were dropped too
        if (sequence_.block[index(in)] == block) dropped_[index(in)] = true;
      });
    }
    sequence_.items.insert(sequence_.items.end(), items.rbegin(), items.rend());
  }

  // Gives each item the number of its stage. Nodes outside of blocks, such as the norm of a gradient, do not end a
  // block's stage.
  void number_stages() {
    std::size_t stage = 0;
    int block = -1;
    bool backward = false, begun = false;
    for (Item &item : sequence_.items) {
      const Node &node = graph_.node(item.node);
      const bool back = item.again || node.phase == Phase::backward, turns = back != backward;
      if (begun && (turns || (node.block >= 0 && node.block != block))) ++stage;
      if (turns || node.block >= 0) block = node.block;
      backward = back;
      begun = true;
      item.stage = stage;
    }
  }

  const Graph &graph_;
  const std::vector<ValueId> &roots_;
  const std::vector<BlockMode> &blocks_;
  std::vector<bool> needed_;                  // per node
  std::vector<std::vector<NodeId>> forward_;  // per block
  std::vector<bool> dropped_;         // per storage root: dropped by a block that recomputes, all or selectively
  std::optional<plan::Lives> lives_;  // made for the first block that recomputes selectively
  Sequence sequence_;
};

}  // namespace

Sequence sequence(const Graph &graph, const std::vector<ValueId> &roots, const std::vector<BlockMode> &blocks,
                  const std::vector<ValueId> &wanted) {
  return Sequencer(graph, roots, blocks).run(wanted);
}

}  // namespace protrain::program
