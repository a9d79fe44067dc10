#include "program/transfers.h"

#include <algorithm>

#include "program/windows.h"

namespace protrain::program {

namespace {

using graph::Node;
using graph::ValueId;
using plan::BlockMode;

template <typename Do>
void each_root(const TransferInputs &from, const Node &node, Do &&act) {
  for (ValueId id : node.inputs)
    if (id != ValueId::none) act(from.roots[index(id)]);
}

// Returns for each chunk the items that need its weights fetched to the device, in ascending order. A chunk that rests
// whole on the device has no such items. For each chunk with deferred updates, also notes in `transfers` the first item
// that uses the chunk.
std::vector<std::vector<std::size_t>> uses_of_chunks(const TransferInputs &from, Transfers &transfers) {
  const std::size_t chunks = from.plan.chunks.size();
  std::vector<std::vector<std::size_t>> uses(chunks);
  std::vector<bool> settled(from.state.chunks.size(), true);
  for (std::size_t c = 0; c < chunks; ++c) {
    if (!from.state.rests_whole_on_device(c)) uses[c] = from.updates.device_uses(c);
    settled[c] = !from.updates.defers(c);
  }
  for (std::size_t i = 0; i < from.sequence.items.size(); ++i)
    each_root(from, from.graph.node(from.sequence.items[i].node), [&](ValueId root) {
      const std::size_t p = from.parameter[index(root)];
      if (p == kNoParameter) return;
      const std::size_t c = from.state.parameters[p].chunk;
      if (!from.state.rests_whole_on_device(c)) uses[c].push_back(i);
      if (settled[c]) return;
      settled[c] = true;
      transfers.settles[i].push_back(c);
      transfers.settled_by = i + 1;
    });
  for (auto &items : uses) {
    std::ranges::sort(items);
    items.erase(std::unique(items.begin(), items.end()), items.end());
  }
  return uses;
}

void plan_fetches(const TransferInputs &from, Transfers &transfers) {
  const auto uses = uses_of_chunks(from, transfers);
  for (const Window &window : windows(uses, static_cast<std::size_t>(from.plan.n_buffer)))
    transfers.fetches[window.fetch_at].push_back(window.chunk);
}

// Plans the moves of swapped activations. They leave the device after the last forward item of their block. They come
// back one stage before backward first reads them.
void plan_swaps(const TransferInputs &from, Transfers &transfers) {
  const Sequence &sequence = from.sequence;
  std::vector<std::size_t> last_forward(from.plan.blocks.size(), kNever), stage_begin;
  std::vector<bool> planned(from.graph.value_count(), false);
  for (std::size_t i = 0; i < sequence.items.size(); ++i) {
    const Item &item = sequence.items[i];
    const Node &node = from.graph.node(item.node);
    if (item.stage >= stage_begin.size()) stage_begin.push_back(i);
    if (node.phase == graph::Phase::forward) {
      if (!item.again && node.block >= 0) last_forward[static_cast<std::size_t>(node.block)] = i;
      continue;
    }
    each_root(from, node, [&](ValueId root) {
      if (sequence.mode[index(root)] != BlockMode::swap || planned[index(root)]) return;
      planned[index(root)] = true;
      const std::size_t out = last_forward[static_cast<std::size_t>(sequence.block[index(root)])];
      const std::size_t ahead = stage_begin[item.stage > 0 ? item.stage - 1 : 0];
      transfers.swaps_out[out].push_back(root);
      transfers.swaps_in[std::max(ahead, out + 1)].push_back(root);
    });
  }
}

}  // namespace

Transfers transfers(const TransferInputs &inputs) {
  Transfers transfers;
  const std::size_t items = inputs.sequence.items.size();
  transfers.fetches.resize(items);
  transfers.settles.resize(items);
  transfers.swaps_in.resize(items);
  transfers.swaps_out.resize(items);
  plan_fetches(inputs, transfers);
  plan_swaps(inputs, transfers);
  return transfers;
}

}  // namespace protrain::program
