#include "plan/cost.h"

#include <algorithm>

namespace protrain::plan {

namespace {

// The share of a move's seconds that is added to a step's time even if compute hides the move, because in practice
// hidden moves cost a little too. So, if two choices are otherwise equal, the search prefers the one with fewer moves.
constexpr double kFriction = 1e-3;

}  // namespace

CostModel::CostModel(const Workload &workload, const Footprint &footprint)
    : workload_(workload),
      footprint_(footprint),
      chunking_(workload.chunking()),
      base_(footprint.base()),
      on_device_(footprint.on_device()),
      shares_cores_(chunking_.durations.profile().shares_cores),
      spreads_(base_.order == OptimizerOrder::overlap && chunking_.terms.defer() && !shares_cores_) {
  weigh();
  for (const Tier tier : kTiers) sum_up(tier);
}

// Sets backward_, and the moves of swapped activations. A block's seconds are divided among the chunks that hold the
// block's parameters.
void CostModel::weigh() {
  const std::size_t n = chunking_.chunks.size();
  const bool to_disk = footprint_.swap_tier() == Tier::disk;
  backward_.reserve(n);
  swap_out_.resize(n);
  swap_in_.resize(n);
  for (std::size_t c = 0; c < n; ++c) {
    double &seconds = backward_.emplace_back(weight(c).backward);
    double &out = to_disk ? swap_out_[c].write : swap_out_[c].down, &in = to_disk ? swap_in_[c].read : swap_in_[c].up;
    for (const auto &[b, part] : weight(c).blocks) {
      const Outline::Block &block = chunking_.outline.blocks[b];
      switch (footprint_.modes()[b]) {
        case BlockMode::keep:
          break;
        case BlockMode::recompute:
          seconds += part * block.forward;
          break;
        case BlockMode::selective:
          seconds += part * block.again;
          break;
        case BlockMode::swap:
          out += part * chunking_.durations.move(Tier::device, footprint_.swap_tier(), block.saved);
          in += part * chunking_.durations.move(footprint_.swap_tier(), Tier::device, block.saved);
          break;
      }
    }
  }
}

// Returns the work of a chunk's update. For a chunk that does not rest on the device, this is the weighted mean of an
// update on the device (weight on_device_) and an update on the host (weight 1 - on_device_).
QueueSeconds CostModel::update(std::size_t c, Tier tier) const {
  const Workload::Chunk &work = workload_.of(c, tier);
  if (tier == Tier::device) return work.update_on_device;
  return work.update_on_device * on_device_ + work.update_on_host * (1 - on_device_);
}

// Returns the work that follows a chunk's backward (eq. 6): the exchange and the moves of its gradient, and in overlap
// order its update. The gradient stays on the device if the chunk rests there, and also if the device updates the chunk
// in overlap order. Otherwise the gradient leaves the device.
QueueSeconds CostModel::settle(std::size_t c, Tier tier) const {
  const Workload::Chunk &chunk = workload_.of(c, tier);
  const bool waits = base_.order == OptimizerOrder::barrier;
  QueueSeconds work = waits ? QueueSeconds{} : update(c, tier);
  double leaves = 0;  // the share of the gradient that leaves the device
  if (tier != Tier::device) leaves = waits ? 1 : 1 - on_device_;
  work.down += leaves * chunk.gradient_down;
  work.write += chunk.gradient_write;
  work.comm += chunk.gradient_comm;
  return work;
}

void CostModel::sum_up(Tier tier) {
  std::vector<Sums> &sums = sums_[tier];
  sums.resize(chunking_.chunks.size() + 1);
  if (tier == Tier::disk && chunking_.terms.capacity[tier] == 0) return;  // no chunk rests there
  const bool waits = base_.order == OptimizerOrder::barrier, deferred = base_.n_deferred != 0;
  for (std::size_t i = 0; i < chunking_.order.size(); ++i) {
    const std::size_t c = chunking_.order[i];
    const QueueSeconds &fetch = workload_.of(c, tier).fetch, &out = swap_out_[c], &in = swap_in_[c];
    const QueueSeconds before = c > 0 ? workload_.of(c - 1, tier).fetch : QueueSeconds{};
    const QueueSeconds settled = settle(c, tier);
    const QueueSeconds after = waits && !deferred ? update(c, tier) : QueueSeconds{};
    const QueueSeconds first = waits && deferred ? update(c, tier) : QueueSeconds{};
    const QueueSeconds moved = fetch + fetch + settled + after + first + out + in;
    // Eq. 3: in forward, a chunk is fetched while the chunk before it computes. Two more pieces of the fetched chunk's
    // work count at that time: its deferred update, and moving its swapped activations away from the device.
    QueueSeconds ahead = QueueSeconds{.compute = c > 0 ? weight(c - 1).forward : 0} + fetch + first + out;
    // Eq. 5: while a chunk runs backward and recomputes, gradients move and swapped activations come back. Backward
    // then goes on to the preceding chunk of the model, so `with_next` also counts the fetch of that chunk.
    QueueSeconds own = QueueSeconds{.compute = backward_[c]} + settled + in, with_next = own + before;
    if (spreads_) own.host = with_next.host = 0;
    if (spreads_disk())
      for (QueueSeconds *work : {&ahead, &own, &with_next}) work->read = work->write = 0;
    const Sums &last = sums[i];
    sums[i + 1] = {
        .forward = last.forward + workload_.longest(ahead),
        .backward = last.backward + workload_.longest(with_next),
        .cached = last.cached + workload_.longest(own),
        .fetch = last.fetch + 2 * workload_.of(c, tier).fetch_alone,
        .after = last.after + workload_.longest(after),
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
  const std::size_t first = cached > footprint_.whole(persist) ? std::min(cached + 1, n) : cached;
  double backward = parts(&Sums::backward, 0, first) + parts(&Sums::cached, first, n);
  const auto on_disk_for = [&](auto read, auto write) {
    return workload_.disk_seconds(parts(read, 0, n), parts(write, 0, n));
  };
  if (spreads_disk()) {
    forward = std::max(forward, on_disk_for(&Sums::read_forward, &Sums::write_forward));
    backward = std::max(backward, on_disk_for(&Sums::read_backward, &Sums::write_backward));
  }
  if (buffers < 2) backward += parts(&Sums::fetch, 0, n);
  const double on_cpu = parts(&Sums::host, 0, n), on_disk = on_disk_for(&Sums::read, &Sums::write);
  const bool barrier = base_.order == OptimizerOrder::barrier && base_.n_deferred == 0;
  const double outside = chunking_.outline.forward + chunking_.outline.backward;
  Estimate estimate;
  // Eq. 2: adds up the parts of the step. In barrier order without deferred updates nothing hides the updates, because
  // they wait for the norm of all gradients. On shared cores nothing hides the host's optimizer, because it and compute
  // take turns. Otherwise the longer of compute and the host's optimizer counts.
  if (barrier || shares_cores_)
    estimate.seconds = outside + forward + backward + parts(&Sums::after, 0, n);
  else if (spreads_)
    estimate.seconds = outside + std::max(forward + backward, on_cpu);
  else
    estimate.seconds = outside + forward + std::max(backward, on_cpu);
  if (spreads_ && on_cpu > backward)
    estimate.n_deferred =
        static_cast<int>((1 - on_device_) * static_cast<double>(n - persist) * (1 - backward / on_cpu));
  estimate.seconds = std::max(estimate.seconds, on_disk) + kFriction * parts(&Sums::ways, 0, n);
  if (shares_cores_) estimate.seconds += (1 - chunking_.durations.profile().compute_beside_disk) * on_disk;
  estimate.bytes = footprint_.bytes(persist, on_host, buffers);
  return estimate;
}

}  // namespace protrain::plan
