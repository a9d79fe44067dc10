#include "plan/cost.h"

#include <algorithm>

#include "ops/op.h"

namespace protrain::plan {

namespace {

// The share of a move's seconds that is added to a step's time even if compute hides the move, because in practice
// hidden moves cost a little too. So, if two choices are otherwise equal, the search prefers the one with fewer moves.
constexpr double kFriction = 1e-3;

}  // namespace

CostModel::Load CostModel::Load::operator+(const Load &other) const {
  return {compute + other.compute, up + other.up,     down + other.down, read + other.read,
          write + other.write,     host + other.host, comm + other.comm};
}
CostModel::Load CostModel::Load::operator*(double share) const {
  return {compute * share, up * share, down * share, read * share, write * share, host * share, comm * share};
}

// Divides each block's seconds among the chunks that hold its parameters, in proportion to these parameters' bytes.
Chunking::Chunking(const graph::Graph &graph, const Outline &outline_, const Durations &durations_, const Terms &terms_,
                   std::uint64_t chunk_bytes)
    : outline(outline_), durations(durations_), terms(terms_) {
  const auto bytes_of = [&](std::size_t p) {
    const graph::Type &type = graph.value(graph.parameters[p]).type;
    return byte_count(type.dtype, type.shape);
  };
  std::vector<std::uint64_t> block_bytes(outline.blocks.size(), 0);
  const std::size_t weights = graph.weights().size();
  for (std::size_t p = 0; p < weights; ++p)
    if (outline.block_of_parameter[p] >= 0)
      block_bytes[static_cast<std::size_t>(outline.block_of_parameter[p])] += bytes_of(p);
  for (const Chunk &cut : cut_chunks(graph, chunk_bytes)) {
    Weight &chunk = chunks.emplace_back();
    chunk.weights = cut.bytes;
    for (std::size_t p : cut.parameters) {
      if (outline.block_of_parameter[p] >= 0) {
        const auto b = static_cast<std::size_t>(outline.block_of_parameter[p]);
        const double part = static_cast<double>(bytes_of(p)) / static_cast<double>(block_bytes[b]);
        chunk.forward += part * outline.blocks[b].forward;
        chunk.backward += part * outline.blocks[b].backward;
        if (chunk.blocks.empty() || chunk.blocks.back().first != b) chunk.blocks.emplace_back(b, 0);
        chunk.blocks.back().second += part;
      }
      if (terms.trained[p]) add_trained(graph.value(graph.parameters[p]).type, p, chunk);
    }
    chunk.weights_shard = shard_of(chunk.weights);
    chunk.gradient_shard = shard_of(chunk.gradient);
    chunk.state = shard_of(chunk.state);
  }
  order = resting_order(chunks.size(), terms.capacity[Tier::disk] > 0);
  find_neighbours();
}

std::uint64_t Chunking::shard_of(std::uint64_t bytes) const {
  const auto ranks = static_cast<std::uint64_t>(terms.ranks);
  return (bytes + ranks - 1) / ranks;
}

// Adds the gradient, the optimizer's state and the update of trained parameter number `p` to its chunk.
void Chunking::add_trained(const graph::Type &type, std::size_t p, Weight &chunk) const {
  const std::uint64_t bytes = byte_count(type.dtype, type.shape);
  chunk.state += terms.optimizer.of(static_cast<std::uint64_t>(element_count(type.shape)));
  chunk.gradient += bytes;
  // A parameter that is updated together with others has no launch of its own.
  const double launch = ops::goes_with_others(type) ? 0 : durations.launch();
  chunk.device_update += launch + durations.update(Tier::device, p, shard_of(bytes));
  if (durations.profile().host_optimizer > 0)
    chunk.host_update += launch + durations.update(Tier::host, p, shard_of(bytes));
}

// Fills in_a_row.
void Chunking::find_neighbours() {
  in_a_row.resize(chunks.size() + 1);
  for (std::size_t from = 0; from <= chunks.size(); ++from) {
    std::vector<std::size_t> left(order.begin() + static_cast<std::ptrdiff_t>(from), order.end());
    std::ranges::sort(left);
    std::vector<std::uint64_t> sums = {0};
    for (std::size_t c : left) sums.push_back(sums.back() + chunks[c].weights);
    for (std::size_t count = 0; count < sums.size(); ++count) {
      std::uint64_t most = 0;
      for (std::size_t end = count; end < sums.size(); ++end) most = std::max(most, sums[end] - sums[end - count]);
      in_a_row[from].push_back(most);
    }
  }
}

CostModel::CostModel(const Chunking &chunking, const Choice &base, double on_device)
    : chunking_(chunking),
      base_(base),
      on_device_(chunking.terms.shared_memory ? 1 : on_device),
      shares_cores_(chunking.durations.profile().shares_cores),
      spreads_(base.order == OptimizerOrder::overlap && chunking.terms.defer() && !shares_cores_),
      lost_beside_disk_(1 - chunking.durations.profile().compute_beside_disk),
      modes_(interleave(chunking.outline.blocks.size(), static_cast<std::size_t>(base.n_swap),
                        static_cast<std::size_t>(base.n_checkpoint), static_cast<std::size_t>(base.n_selective))),
      outside_(chunking.outline.forward + chunking.outline.backward) {
  weigh();
  for (const Tier tier : kTiers) sum_up(tier);
  hold();
}

// Returns the bytes that are moved for a chunk's update to the place where the optimizer runs. In overlap order only
// the optimizer's state is moved, because weights and gradient are still at that place when backward ends.
// (update_on_host() adds weights that come from the disk.) In barrier order weights, gradient and state are moved. If
// updates are deferred in barrier order, only gradient and state are moved, because the fetch of the next forward
// brings the weights.
std::uint64_t CostModel::brought(std::size_t c) const {
  if (base_.order == OptimizerOrder::overlap) return weight(c).state;
  return base_.n_deferred == 0 ? rest_of_shard(c) : rest_of_shard(c) - weight(c).weights_shard;
}

std::uint64_t CostModel::rest_of_shard(std::size_t c) const {
  const Chunking::Weight &chunk = weight(c);
  return chunk.weights_shard + chunk.state + (base_.order != OptimizerOrder::overlap ? chunk.gradient_shard : 0);
}

std::uint64_t CostModel::rest(std::size_t c) const {
  return rest_of_shard(c) - weight(c).weights_shard + weight(c).weights;
}

// Returns the seconds of an all-gather or all-to-all of `bytes` between the ranks; 0 for one rank. Each rank receives
// all of `bytes` but its own share.
double CostModel::exchange(std::uint64_t bytes) const {
  const auto ranks = static_cast<std::uint64_t>(chunking_.terms.ranks);
  return ranks > 1 ? chunking_.durations.exchange(bytes - bytes / ranks) : 0;
}

void CostModel::weigh() {
  rest_.whole.reserve(chunking_.chunks.size() + 1);
  rest_.shard.reserve(chunking_.chunks.size() + 1);
  backward_.reserve(chunking_.chunks.size());
  for (std::size_t c : chunking_.order) {
    rest_.whole.push_back(rest_.whole.back() + rest(c));
    rest_.shard.push_back(rest_.shard.back() + rest_of_shard(c));
  }
  for (std::size_t c = 0; c < chunking_.chunks.size(); ++c) {
    double &seconds = backward_.emplace_back(weight(c).backward);
    for (const auto &[block, part] : weight(c).blocks) {
      if (modes_[block] == BlockMode::recompute) seconds += part * chunking_.outline.blocks[block].forward;
      if (modes_[block] == BlockMode::selective) seconds += part * chunking_.outline.blocks[block].again;
    }
  }
}

// Returns the work of fetching a chunk's weights (eq. 4 and 7): the moves to the device, and the exchange that gives
// each rank the whole weights.
CostModel::Load CostModel::prefetch(std::size_t c, Tier tier) const {
  Load load;
  if (tier == Tier::device) return shards_all() ? Load{.comm = exchange(weight(c).weights)} : load;
  const std::uint64_t bytes = weight(c).weights_shard;
  if (tier == Tier::disk) load.read = chunking_.durations.move(Tier::disk, Tier::device, bytes);
  if (!chunking_.terms.shared_memory) load.up = chunking_.durations.move(Tier::host, Tier::device, bytes);
  load.comm = exchange(weight(c).weights);
  return load;
}

// Returns the work of a chunk's update. For a chunk that does not rest on the device, this is the weighted mean of an
// update on the device (weight on_device_) and an update on the host (weight 1 - on_device_).
CostModel::Load CostModel::update(std::size_t c, Tier tier) const {
  // The ranks exchange the updated weights, which have as many bytes as their gradients.
  if (tier == Tier::device)
    return {.compute = weight(c).device_update, .comm = shards_all() ? 0 : exchange(weight(c).gradient)};
  return update_on_device(c, tier) * on_device_ + update_on_host(c, tier) * (1 - on_device_);
}

CostModel::Load CostModel::update_on_device(std::size_t c, Tier tier) const {
  const Chunking::Weight &chunk = weight(c);
  const std::uint64_t comes = brought(c);
  Load load{.compute = chunk.device_update};
  if (tier == Tier::disk) {
    load.read = chunking_.durations.move(Tier::disk, Tier::host, comes);
    load.write = chunking_.durations.move(Tier::host, Tier::disk, chunk.weights_shard + chunk.state);
  }
  if (chunking_.terms.shared_memory) return load;
  load.up = chunking_.durations.move(Tier::host, Tier::device, comes);
  load.down = chunking_.durations.move(Tier::device, Tier::host, chunk.weights_shard + chunk.state);
  return load;
}

CostModel::Load CostModel::update_on_host(std::size_t c, Tier tier) const {
  const Chunking::Weight &chunk = weight(c);
  Load load{.host = chunk.host_update};
  if (tier == Tier::disk) {
    const std::uint64_t weights = base_.order == OptimizerOrder::overlap ? chunk.weights_shard : 0;
    load.read = chunking_.durations.move(Tier::disk, Tier::host, brought(c) + weights);
    load.write = chunking_.durations.move(Tier::host, Tier::disk, chunk.weights_shard + chunk.state);
  }
  return load;
}

// Returns the work that follows a chunk's backward (eq. 6): the exchange and the moves of its gradient, and in overlap
// order its update. The gradient stays on the device if the chunk rests there, and also if the device updates the chunk
// in overlap order. Otherwise the gradient leaves the device.
CostModel::Load CostModel::settle(std::size_t c, Tier tier) const {
  const bool waits = base_.order == OptimizerOrder::barrier;
  Load load = waits ? Load{} : update(c, tier);
  double leaves = 0;  // the share of the gradient that leaves the device
  if (tier != Tier::device) leaves = waits ? 1 : 1 - on_device_;
  if (!chunking_.terms.shared_memory)
    load.down += leaves * chunking_.durations.move(Tier::device, Tier::host, weight(c).gradient_shard);
  if (waits && tier == Tier::disk)
    load.write += chunking_.durations.move(Tier::host, Tier::disk, weight(c).gradient_shard);
  load.comm += exchange(weight(c).gradient);
  return load;
}

// Return the moves of swapped activations away from the device and back to it. They run on the same queues as the moves
// of chunks.
CostModel::Load CostModel::swap_out(std::size_t c) const {
  const double seconds = moved_by_swaps(c, Tier::device, swap_tier());
  return swap_tier() == Tier::disk ? Load{.write = seconds} : Load{.down = seconds};
}

CostModel::Load CostModel::swap_in(std::size_t c) const {
  const double seconds = moved_by_swaps(c, swap_tier(), Tier::device);
  return swap_tier() == Tier::disk ? Load{.read = seconds} : Load{.up = seconds};
}

// Returns the seconds that it takes to move the swapped activations of the chunk's blocks. A block's seconds are
// divided among the chunks that hold the block's parameters.
double CostModel::moved_by_swaps(std::size_t c, Tier from, Tier to) const {
  double seconds = 0;
  for (const auto &[block, part] : weight(c).blocks)
    if (modes_[block] == BlockMode::swap)
      seconds += part * chunking_.durations.move(from, to, chunking_.outline.blocks[block].saved);
  return seconds;
}

// Returns the seconds that a load takes. If the device has cores of its own, each queue runs beside all others, but
// uploads and downloads together may be slower than each alone. On shared cores, compute, copies and the host's
// optimizer take turns. Only the disk and the exchanges between ranks run beside them.
double CostModel::longest(const Load &load) const {
  const double disk = disk_seconds(load.read, load.write);
  if (shares_cores_) return std::max({load.compute + load.up + load.down + load.host, disk, load.comm});
  const profile::Profile &profile = chunking_.durations.profile();
  const double both_ways =
      profile.both_ways > 0 ? (load.up * profile.upload + load.down * profile.download) / profile.both_ways : 0;
  return std::max({load.compute, load.up, load.down, both_ways, disk, load.host, load.comm});
}

// Returns the seconds that the disk takes for reads and writes that run at the same time. Alone, the reads would take
// `read` seconds and the writes `write` seconds.
double CostModel::disk_seconds(double read, double write) const {
  const profile::Profile &profile = chunking_.durations.profile();
  if (read + write == 0) return 0;
  return std::max({read, write, (read * profile.disk_read + write * profile.disk_write) / profile.disk_total()});
}

void CostModel::sum_up(Tier tier) {
  std::vector<Sums> &sums = sums_[tier];
  sums.resize(chunking_.chunks.size() + 1);
  if (tier == Tier::disk && chunking_.terms.capacity[tier] == 0) return;  // no chunk rests there
  for (std::size_t i = 0; i < chunking_.order.size(); ++i) {
    const std::size_t c = chunking_.order[i];
    const Load fetch = prefetch(c, tier), settled = settle(c, tier);
    const Load before = c > 0 ? prefetch(c - 1, tier) : Load{};
    const bool waits = base_.order == OptimizerOrder::barrier, deferred = base_.n_deferred != 0;
    const Load after = waits && !deferred ? update(c, tier) : Load{};
    const Load first = waits && deferred ? update(c, tier) : Load{};
    const Load out = swap_out(c), in = swap_in(c);
    const Load moved = fetch + fetch + settled + after + first + out + in;
    // Eq. 3: in forward, a chunk is fetched while the chunk before it computes. Two more pieces of the fetched chunk's
    // work count at that time: its deferred update, and moving its swapped activations away from the device.
    Load ahead = Load{.compute = c > 0 ? weight(c - 1).forward : 0} + fetch + first + out;
    // Eq. 5: while a chunk runs backward and recomputes, gradients move and swapped activations come back. Backward
    // then goes on to the preceding chunk of the model, so `with_next` also counts the fetch of that chunk.
    Load own = Load{.compute = backward_[c]} + settled + in, with_next = own + before;
    if (spreads_) own.host = with_next.host = 0;
    if (spreads_disk())
      for (Load *load : {&ahead, &own, &with_next}) load->read = load->write = 0;
    const Sums &last = sums[i];
    sums[i + 1] = {
        .forward = last.forward + longest(ahead),
        .backward = last.backward + longest(with_next),
        .cached = last.cached + longest(own),
        .fetch = last.fetch + 2 * longest(fetch),
        .after = last.after + longest(after),
        .ways = last.ways + moved.up + moved.down + moved.read + moved.write + moved.comm,
        .host = last.host + (tier != Tier::device ? (1 - on_device_) * weight(c).host_update : 0),
        .read = last.read + moved.read,
        .write = last.write + moved.write,
        .read_forward = last.read_forward + fetch.read + first.read,
        .write_forward = last.write_forward + first.write + out.write,
        .read_backward = last.read_backward + fetch.read + settled.read + in.read,
        .write_backward = last.write_backward + settled.write,
    };
  }
}

// Sets held_, the bytes that do not depend on where chunks rest. Activations (eq. 8 to 10) peak during the backward of
// some block. At this peak the device holds the activations that earlier blocks keep, all activations that this block
// saves, and the most that its nodes need in addition. The inputs of recomputed blocks count too, although the paper
// cited in cost.h leaves them out.
void CostModel::hold() {
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

std::size_t CostModel::fitting_host(std::size_t persist, std::uint64_t bytes) const {
  const std::uint64_t room = bytes > ~0ull - rest_.shard[persist] ? ~0ull : rest_.shard[persist] + bytes;
  const auto end = std::ranges::upper_bound(rest_.shard, room);
  return static_cast<std::size_t>(end - rest_.shard.begin()) - 1 - persist;
}

std::size_t CostModel::fitting_buffers(std::size_t persist, std::size_t on_host, std::uint64_t bytes) const {
  if (buffered(persist) == 0) return 0;
  const std::uint64_t base = peak_bytes(persist, on_host, 0)[Tier::device];
  if (bytes < base) return 0;
  const std::vector<std::uint64_t> &in_a_row = chunking_.in_a_row[whole(persist)];
  return static_cast<std::size_t>(std::ranges::upper_bound(in_a_row, bytes - base) - in_a_row.begin()) - 1;
}

Bytes CostModel::peak_bytes(std::size_t persist, std::size_t on_host, std::size_t buffers) const {
  const std::size_t host_end = persist + on_host;
  const Tier host = chunking_.terms.shared_memory ? Tier::device : Tier::host;  // where chunks of the host's tier rest
  Bytes bytes{};
  bytes[Tier::device] = held_.activations + (shards_all() ? rest_.shard : rest_.whole)[persist];
  if (const std::size_t visitors = buffered(persist); visitors > 0)
    bytes[Tier::device] += held_.in_flight + chunking_.in_a_row[whole(persist)][std::min(buffers, visitors)];  // eq. 11
  bytes[host] += rest_.shard[host_end] - rest_.shard[persist];
  bytes[Tier::disk] += rest_.shard.back() - rest_.shard[host_end];
  bytes[swap_tier()] += held_.swapped;
  return bytes;
}

Estimate CostModel::estimate(std::size_t persist, std::size_t on_host, std::size_t buffers) const {
  const std::size_t n = chunking_.chunks.size(), host_end = persist + on_host, cached = n - std::min(buffers, n);
  const auto between = [&](double Sums::*of, Tier tier, std::size_t begin, std::size_t end) {
    return begin < end ? sums_[tier][end].*of - sums_[tier][begin].*of : 0;
  };
  const auto parts = [&](double Sums::*of, std::size_t begin, std::size_t end) {
    return between(of, Tier::device, begin, std::min(end, persist)) +
           between(of, Tier::host, std::max(begin, persist), std::min(end, host_end)) +
           between(of, Tier::disk, std::max(begin, host_end), end);
  };
  const double last_forward = n > 0 ? weight(n - 1).forward : 0;
  double forward = parts(&Sums::forward, 0, n) + last_forward;  // eq. 3, i = N_chunk + 1
  // When backward begins, buffers still hold the weights of chunk `cached` and of all later chunks of the model, so
  // backward does not fetch these chunks. It fetches every other chunk while the chunk after it in the model runs
  // backward. So the time of chunk `cached` includes the fetch of chunk `cached` - 1, if that chunk needs a fetch.
  const std::size_t first = cached > whole(persist) ? std::min(cached + 1, n) : cached;
  double backward = parts(&Sums::backward, 0, first) + parts(&Sums::cached, first, n);
  const auto on_disk_for = [&](auto read, auto write) { return disk_seconds(parts(read, 0, n), parts(write, 0, n)); };
  if (spreads_disk()) {
    forward = std::max(forward, on_disk_for(&Sums::read_forward, &Sums::write_forward));
    backward = std::max(backward, on_disk_for(&Sums::read_backward, &Sums::write_backward));
  }
  if (buffers < 2) backward += parts(&Sums::fetch, 0, n);
  const double on_cpu = parts(&Sums::host, 0, n), on_disk = on_disk_for(&Sums::read, &Sums::write);
  const bool barrier = base_.order == OptimizerOrder::barrier && base_.n_deferred == 0;
  Estimate estimate;
  // Eq. 2: adds up the parts of the step. In barrier order without deferred updates nothing hides the updates, because
  // they wait for the norm of all gradients. On shared cores nothing hides the host's optimizer, because it and compute
  // take turns. Otherwise the longer of compute and the host's optimizer counts.
  if (barrier || shares_cores_)
    estimate.seconds = outside_ + forward + backward + parts(&Sums::after, 0, n);
  else if (spreads_)
    estimate.seconds = outside_ + std::max(forward + backward, on_cpu);
  else
    estimate.seconds = outside_ + forward + std::max(backward, on_cpu);
  if (spreads_ && on_cpu > backward)
    estimate.n_deferred =
        static_cast<int>((1 - on_device_) * static_cast<double>(n - persist) * (1 - backward / on_cpu));
  estimate.seconds = std::max(estimate.seconds, on_disk) + kFriction * parts(&Sums::ways, 0, n);
  if (shares_cores_) estimate.seconds += lost_beside_disk_ * on_disk;
  estimate.bytes = peak_bytes(persist, on_host, buffers);
  return estimate;
}

}  // namespace protrain::plan
