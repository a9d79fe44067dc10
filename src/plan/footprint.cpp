#include "plan/footprint.h"

#include <algorithm>

namespace protrain::plan {

Footprint::Footprint(const Chunking &chunking, const Choice &base, double on_device)
    : chunking_(chunking),
      base_(base),
      on_device_(chunking.terms.shared_memory ? 1 : on_device),
      modes_(interleave(chunking.outline.blocks.size(), static_cast<std::size_t>(base.n_swap),
                        static_cast<std::size_t>(base.n_checkpoint), static_cast<std::size_t>(base.n_selective))) {
  rest_.whole.reserve(chunks() + 1);
  rest_.shard.reserve(chunks() + 1);
  for (std::size_t c : chunking_.order) {
    const Chunking::Weight &chunk = chunking_.chunks[c];
    const std::uint64_t shard = chunk.rest_of_shard(base.order);
    rest_.whole.push_back(rest_.whole.back() + shard - chunk.weights_shard + chunk.weights);
    rest_.shard.push_back(rest_.shard.back() + shard);
  }
  hold();
}

// Sets held_, the bytes that do not depend on where chunks rest. Activations (eq. 8 to 10) peak during the backward of
// some block. At this peak the device holds the activations that earlier blocks keep, all activations that this block
// saves, and the most that its nodes need in addition. The inputs of recomputed blocks count too, although the paper
// leaves them out.
void Footprint::hold() {
  std::uint64_t kept = chunking_.outline.outside;
  held_.activations = kept + chunking_.outline.head_transient;
  for (std::size_t b = 0; b < chunking_.outline.blocks.size(); ++b) {
    const Outline::Block &block = chunking_.outline.blocks[b];
    // If the block before this one is swapped, its activations come back while this block runs backward.
    const std::uint64_t ahead = b > 0 && modes_[b - 1] == BlockMode::swap ? chunking_.outline.blocks[b - 1].saved : 0;
    held_.activations = std::max(held_.activations, kept + block.border + block.saved + block.transient + ahead);
    kept += block.border;
    if (modes_[b] == BlockMode::keep) kept += block.saved;
    if (modes_[b] == BlockMode::selective) kept += block.saved - block.cheap;
    if (modes_[b] == BlockMode::swap) held_.swapped += block.saved;
  }
  held_.activations = std::max(held_.activations, kept + chunking_.outline.head_transient);
  for (const Chunking::Weight &chunk : chunking_.chunks) {
    const std::uint64_t moments = on_device_ > 0 ? chunk.state : 0;
    held_.in_flight = std::max(held_.in_flight, chunk.gradient + moments);
  }
}

std::size_t Footprint::fitting_host(std::size_t persist, std::uint64_t room) const {
  const std::uint64_t most = room > ~0ull - rest_.shard[persist] ? ~0ull : rest_.shard[persist] + room;
  const auto end = std::ranges::upper_bound(rest_.shard, most);
  return static_cast<std::size_t>(end - rest_.shard.begin()) - 1 - persist;
}

std::size_t Footprint::fitting_buffers(std::size_t persist, std::size_t on_host, std::uint64_t room) const {
  if (buffered(persist) == 0) return 0;
  const std::uint64_t base = bytes(persist, on_host, 0)[Tier::device];
  if (room < base) return 0;
  const std::vector<std::uint64_t> &in_a_row = chunking_.in_a_row[whole(persist)];
  return static_cast<std::size_t>(std::ranges::upper_bound(in_a_row, room - base) - in_a_row.begin()) - 1;
}

Bytes Footprint::bytes(std::size_t persist, std::size_t on_host, std::size_t buffers) const {
  const std::size_t host_end = persist + on_host;
  const Tier host = chunking_.terms.shared_memory ? Tier::device : Tier::host;  // where chunks of the host's tier rest
  Bytes all{};
  all[Tier::device] = held_.activations + (chunking_.shards_all(base_) ? rest_.shard : rest_.whole)[persist];
  if (const std::size_t visitors = buffered(persist); visitors > 0)
    all[Tier::device] += held_.in_flight + chunking_.in_a_row[whole(persist)][std::min(buffers, visitors)];  // eq. 11
  all[host] += rest_.shard[host_end] - rest_.shard[persist];
  all[Tier::disk] += rest_.shard.back() - rest_.shard[host_end];
  all[swap_tier()] += held_.swapped;
  return all;
}

}  // namespace protrain::plan
