#include "plan/workload.h"

#include <algorithm>

namespace protrain::plan {

Workload::Workload(const Chunking &chunking, const Choice &base)
    : chunking_(chunking), order_(base.order), defers_(base.n_deferred != 0), shards_all_(chunking.shards_all(base)) {
  if (const profile::Profile &profile = chunking.durations.profile(); profile.both_ways > 0) {
    up_both_ways_ = profile.upload / profile.both_ways;
    down_both_ways_ = profile.download / profile.both_ways;
  }
  for (const Tier tier : kTiers)
    for (std::size_t c = 0; c < chunking.chunks.size(); ++c) chunks_[tier].push_back(chunk_in(c, tier));
}

Workload::Chunk Workload::chunk_in(std::size_t c, Tier tier) const {
  const Chunking::Weight &weight = chunking_.chunks[c];
  Chunk chunk{.fetch = fetch(c, tier),
              .update_on_device = update_on_device(c, tier),
              .update_on_host = update_on_host(c, tier),
              .gradient_comm = exchange(weight.gradient)};
  chunk.fetch_alone = longest(chunk.fetch);
  if (!chunking_.terms.shared_memory)
    chunk.gradient_down = chunking_.durations.move(Tier::device, Tier::host, weight.gradient_shard);
  if (order_ == OptimizerOrder::barrier && tier == Tier::disk)
    chunk.gradient_write = chunking_.durations.move(Tier::host, Tier::disk, weight.gradient_shard);
  return chunk;
}

QueueSeconds Workload::fetch(std::size_t c, Tier tier) const {
  const Chunking::Weight &chunk = chunking_.chunks[c];
  QueueSeconds work;
  if (tier == Tier::device) return shards_all_ ? QueueSeconds{.comm = exchange(chunk.weights)} : work;
  if (tier == Tier::disk) work.read = chunking_.durations.move(Tier::disk, Tier::device, chunk.weights_shard);
  if (!chunking_.terms.shared_memory) work.up = chunking_.durations.move(Tier::host, Tier::device, chunk.weights_shard);
  work.comm = exchange(chunk.weights);
  return work;
}

// Returns the bytes that are moved for a chunk's update to the place where the optimizer runs. In overlap order only
// the optimizer's state is moved, because weights and gradient are still at that place when backward ends.
// (update_on_host() adds weights that come from the disk.) In barrier order weights, gradient and state are moved. If
// updates are deferred in barrier order, only gradient and state are moved, because the fetch of the next forward
// brings the weights.
std::uint64_t Workload::brought(std::size_t c) const {
  const Chunking::Weight &chunk = chunking_.chunks[c];
  if (order_ == OptimizerOrder::overlap) return chunk.state;
  return defers_ ? chunk.rest_of_shard(order_) - chunk.weights_shard : chunk.rest_of_shard(order_);
}

QueueSeconds Workload::update_on_device(std::size_t c, Tier tier) const {
  const Chunking::Weight &chunk = chunking_.chunks[c];
  QueueSeconds work{.compute = chunk.device_update};
  if (tier == Tier::device) {
    // The ranks exchange the updated weights, which have as many bytes as their gradients.
    work.comm = shards_all_ ? 0 : exchange(chunk.gradient);
    return work;
  }
  const std::uint64_t comes = brought(c);
  if (tier == Tier::disk) {
    work.read = chunking_.durations.move(Tier::disk, Tier::host, comes);
    work.write = chunking_.durations.move(Tier::host, Tier::disk, chunk.weights_shard + chunk.state);
  }
  if (chunking_.terms.shared_memory) return work;
  work.up = chunking_.durations.move(Tier::host, Tier::device, comes);
  work.down = chunking_.durations.move(Tier::device, Tier::host, chunk.weights_shard + chunk.state);
  return work;
}

QueueSeconds Workload::update_on_host(std::size_t c, Tier tier) const {
  const Chunking::Weight &chunk = chunking_.chunks[c];
  QueueSeconds work{.host = chunk.host_update};
  if (tier == Tier::disk) {
    const std::uint64_t weights = order_ == OptimizerOrder::overlap ? chunk.weights_shard : 0;
    work.read = chunking_.durations.move(Tier::disk, Tier::host, brought(c) + weights);
    work.write = chunking_.durations.move(Tier::host, Tier::disk, chunk.weights_shard + chunk.state);
  }
  return work;
}

// Returns the seconds of an all-gather or all-to-all of `bytes` between the ranks; 0 for one rank. Each rank receives
// all of `bytes` but its own share.
double Workload::exchange(std::uint64_t bytes) const {
  const auto ranks = static_cast<std::uint64_t>(chunking_.terms.ranks);
  return ranks > 1 ? chunking_.durations.exchange(bytes - bytes / ranks) : 0;
}

double Workload::longest(const QueueSeconds &work) const {
  const profile::Profile &profile = chunking_.durations.profile();
  const double disk = disk_seconds(work.read, work.write);
  if (profile.shares_cores) return std::max({work.compute + work.up + work.down + work.host, disk, work.comm});
  const double both_ways = work.up * up_both_ways_ + work.down * down_both_ways_;
  return std::max({work.compute, work.up, work.down, both_ways, disk, work.host, work.comm});
}

double Workload::disk_seconds(double read, double write) const {
  const profile::Profile &profile = chunking_.durations.profile();
  if (read + write == 0) return 0;
  return std::max({read, write, (read * profile.disk_read + write * profile.disk_write) / profile.disk_total()});
}

}  // namespace protrain::plan
