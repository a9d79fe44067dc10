#include "plan/ranking.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

namespace protrain::plan {

namespace {

constexpr std::size_t kShortlist = 1500;  // most choices kept; a search goes through all of them after each trial
constexpr int kSteps = 10;                // rank() tries about this many values of each integer
constexpr int kShares = 8;                // rank() tries shares of updates on the device in steps of 1 / kShares

// Returns 0, 1, 2, ... `last`. If `last` is large, returns only about kSteps of these, including 0 and `last`.
std::vector<int> spread(int last) {
  const int step = std::max(1, last / kSteps);
  std::vector<int> values;
  for (int value = 0; value < last; value += step) values.push_back(value);
  values.push_back(last);
  return values;
}

// Returns n_device_update of a choice in which the device updates this share of the non-persistent chunks: 0 for none,
// -1 for all. For some it returns 1, and rank_chunks() sets the number.
int device_updates(double share) {
  if (share <= 0) return 0;
  return share >= 1 ? -1 : 1;
}

// Fastest keeps the candidates that look fastest, about kShortlist in all. Candidates with the same n_swap and the same
// place of the optimizer are of one kind. Each kind keeps its fastest candidates, up to the same number for all kinds,
// because the closed form says little about how one kind compares with another.
class Fastest {
 public:
  void add(const Candidate &candidate) {
    std::vector<Candidate> &kept = kinds_[{candidate.choice.n_swap, mix_of(candidate.choice)}];
    if (kept.size() == kShortlist) {
      if (!faster(candidate, kept.front())) return;
      std::ranges::pop_heap(kept, faster);
      kept.pop_back();
    }
    kept.push_back(candidate);
    std::ranges::push_heap(kept, faster);
  }

  // Returns the candidates sorted by n_swap, then by the place of the optimizer, then from fast to slow.
  std::vector<Candidate> take() {
    std::vector<Candidate> all;
    const std::size_t each = kinds_.empty() ? 0 : kShortlist / kinds_.size();
    for (auto &[kind, kept] : kinds_) {
      std::ranges::sort_heap(kept, faster);
      const std::size_t count = std::min(each, kept.size());
      all.insert(all.end(), kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return all;
  }

 private:
  // True if `a` looks faster than `b`. If both look equally fast, the one that takes less of the device counts as
  // faster, because it is the likelier one to fit.
  static bool faster(const Candidate &a, const Candidate &b) {
    const auto order = [](const Candidate &of) {
      return std::pair(of.estimate.seconds, of.estimate.bytes[Tier::device]);
    };
    return order(a) < order(b);
  }

  std::map<std::pair<int, Mix>, std::vector<Candidate>> kinds_;  // each is a heap with its slowest candidate in front
};

}  // namespace

Ranking::Ranking(const graph::Graph &graph, const Outline &outline, const Space &space, const Durations &durations,
                 const Terms &terms, const Trials &trials)
    : terms_(terms), space_(space), trials_(trials) {
  chunkings_.reserve(space.chunk_bytes.size());
  for (std::uint64_t bytes : space.chunk_bytes) chunkings_.emplace_back(graph, outline, durations, terms, bytes);
}

void Ranking::rank(const Choice &all, double margin, std::optional<Mix> mix) {
  margin_ = margin;
  Fastest fastest;
  const std::vector<double> shares = shares_of(mix);
  Choice base = all;
  for (std::size_t i = 0; i < chunkings_.size(); ++i) {
    const Workload workload(chunkings_[i], base);
    base.chunk_bytes = space_.chunk_bytes[i];
    for (int swaps : spread(space_.most_swap))
      for (int again : spread(space_.blocks - swaps))
        for (int selective : selections(swaps + again)) {
          base.n_swap = swaps;
          base.n_checkpoint = again;
          base.n_selective = selective;
          for (double share : shares)
            for (const Candidate &candidate : rank_chunks(workload, base, share)) fastest.add(candidate);
        }
  }
  shortlist_ = fastest.take();
}

// Returns the shares of updates on the device, in steps of 1 / kShares, that rank() tries for a place of the optimizer.
std::vector<double> Ranking::shares_of(std::optional<Mix> mix) const {
  std::vector<double> shares;
  for (int step = space_.host_updates ? 0 : kShares; step <= kShares; ++step) {
    const double share = static_cast<double>(step) / kShares;
    if (!mix || mix_of({.n_device_update = device_updates(share)}) == *mix) shares.push_back(share);
  }
  return shares;
}

// Returns the values of n_selective that are compared when `leaving` blocks swap or recompute. The first is 0: all
// other blocks keep everything. The second is the number of all other blocks: each recomputes its cheap values.
std::vector<int> Ranking::selections(int leaving) const {
  if (leaving == space_.blocks) return {0};
  return {0, space_.blocks - leaving};
}

void Ranking::add_neighbours(const Choice &around) {
  const auto at = std::ranges::find(space_.chunk_bytes, around.chunk_bytes) - space_.chunk_bytes.begin();
  const Workload workload(chunkings_[static_cast<std::size_t>(at)], around);
  const std::vector<double> shares = shares_near(around, workload.chunking().chunks.size());
  Choice base = around;
  for (int swaps = around.n_swap - 1; swaps <= around.n_swap + 1; ++swaps)
    for (int again = around.n_checkpoint - 2; again <= around.n_checkpoint + 2; ++again) {
      if (swaps < 0 || swaps > space_.most_swap || again < 0 || swaps + again > space_.blocks) continue;
      base.n_swap = swaps;
      base.n_checkpoint = again;
      for (int selective : selections(swaps + again)) {
        base.n_selective = selective;
        for (double share : shares)
          std::ranges::copy(rank_chunks(workload, base, share, &around.n_persist), std::back_inserter(shortlist_));
      }
    }
}

// For choices near `around`, returns fractions of the non-persistent chunks that the device can be made to update: the
// fraction in `around` itself, and the fractions with one updated chunk fewer and with one more.
std::vector<double> Ranking::shares_near(const Choice &around, std::size_t chunks) const {
  const int left = static_cast<int>(chunks) - around.n_persist;
  if (!space_.host_updates || left == 0) return {1};
  const int own = around.n_device_update < 0 ? left : around.n_device_update;
  std::vector<double> shares;
  for (int count = std::max(own - 1, 0); count <= std::min(own + 1, left); ++count)
    shares.push_back(static_cast<double>(count) / left);
  return shares;
}

// Returns choices with different n_persist, n_host and n_buffer that fit by their estimates. n_persist takes the values
// that persists() returns for `around`. n_host comes from chunks_on_host(): in most cases it is the number of chunks
// that fit the host, because the host is never slower than the disk. n_buffer takes the values 1 and 3, and the three
// largest that fit. `share` is the fraction of the non-persistent chunks that the device updates.
std::vector<Candidate> Ranking::rank_chunks(const Workload &workload, Choice choice, double share, const int *around) {
  const Footprint footprint(workload.chunking(), choice, share);
  const std::size_t n = footprint.chunks();
  const int own = device_updates(share);
  choice.n_device_update = own;
  const Bytes room = room_near(choice);
  const std::vector<std::size_t> persisting = persists(footprint, room, around);
  std::vector<Candidate> found;
  if (persisting.empty()) return found;
  const CostModel model(workload, footprint);
  for (std::size_t persist : persisting) {
    if (persist == n && own >= 0) continue;  // nothing is left to update on the host
    if (own > 0) {
      const int left = static_cast<int>(n - persist);
      if (left < 2) continue;  // one chunk cannot be a mix
      choice.n_device_update = std::clamp(static_cast<int>(std::lround(share * left)), 1, left - 1);
    }
    const std::size_t on_host = chunks_on_host(footprint, persist, room);
    const std::size_t most = footprint.fitting_buffers(persist, on_host, room[Tier::device]);
    choice.n_persist = static_cast<int>(persist);
    choice.n_host = static_cast<int>(on_host);
    for (std::size_t buffers : {most, most - std::min<std::size_t>(most, 1), most - std::min<std::size_t>(most, 2),
                                std::min<std::size_t>(most, 3), std::min<std::size_t>(most, 1)}) {
      choice.n_buffer = static_cast<int>(buffers);
      const Estimate estimate = model.estimate(persist, on_host, buffers);
      if (choice.order == OptimizerOrder::overlap) choice.n_deferred = estimate.n_deferred;
      ++ranked_;
      if (estimate.bytes[Tier::disk] <= room[Tier::disk] && estimate.bytes[Tier::device] <= room[Tier::device])
        found.push_back({choice, estimate});
      if (footprint.buffered(persist) == 0) break;
    }
  }
  return found;
}

// Returns n_host for a choice that keeps `persist` chunks on the device. If device and host have separate memory,
// n_host is the largest number of chunks that fit the host. On shared memory with one rank, n_host is 0, because chunks
// on the host would take as much memory as persistent ones. On shared memory with several ranks, chunks on the host are
// shards, and n_host is the largest number of them that leaves memory for a buffer.
std::size_t Ranking::chunks_on_host(const Footprint &footprint, std::size_t persist, const Bytes &room) const {
  if (!terms_.shared_memory) return footprint.fitting_host(persist, room[Tier::host]);
  if (terms_.ranks == 1 || persist == footprint.chunks()) return 0;
  const std::uint64_t rest = footprint.bytes(persist, 0, 1)[Tier::device];
  return footprint.fitting_host(persist, room[Tier::device] - std::min(rest, room[Tier::device]));
}

// Returns the values of n_persist to rank. With each of these values the device has room for a buffer and, if there is
// no disk, the host can hold all chunks that do not persist. The number of all chunks is among the values if all chunks
// fit the device. If `around` is not nullptr, returns only values near *around and the largest values.
std::vector<std::size_t> Ranking::persists(const Footprint &footprint, const Bytes &room, const int *around) const {
  const std::size_t n = footprint.chunks();
  std::vector<std::size_t> found;
  if (terms_.can_rest_elsewhere()) {
    std::size_t first = 0, end = n;
    const auto on_host = [&](std::size_t persist) { return chunks_on_host(footprint, persist, room); };
    if (terms_.capacity[Tier::disk] == 0)
      while (first < n && first + on_host(first) < n) ++first;
    while (end > first && footprint.fitting_buffers(end - 1, on_host(end - 1), room[Tier::device]) == 0) --end;
    if (end > first)
      for (int more : spread(static_cast<int>(end - first) - 1))
        found.push_back(first + static_cast<std::size_t>(more));
    if (around != nullptr) {
      const auto at = static_cast<std::size_t>(*around);
      found.clear();
      for (std::size_t p = at - std::min<std::size_t>(at, 3); p <= at + 3; ++p)
        if (p >= first && p < end) found.push_back(p);
      // *around comes from a plan with other block modes, which may keep more activations on the device. With the block
      // modes here, far more chunks may fit. Therefore the largest values that fit are added too.
      for (std::size_t p = end - std::min<std::size_t>(end, 3); p < end; ++p)
        if (p > at + 3) found.push_back(p);
    }
  }
  if (footprint.bytes(n, 0, std::min<std::size_t>(footprint.buffered(n), 1))[Tier::device] <= room[Tier::device])
    found.push_back(n);
  return found;
}

// Returns for each tier the largest estimate of the closed form with which a plan like `choice` is expected to fit. If
// there are trials, this limit is the capacity minus the bytes by which the closed form was too low for the nearest
// trial. If there is no trial, the limit is margin_ times the capacity.
Bytes Ranking::room_near(const Choice &choice) const {
  const Trial *near = trials_.nearest_in_modes(choice);
  Bytes room = terms_.capacity;
  for (const Tier t : kTiers)
    room[t] = shifted(room[t], near != nullptr ? -near->memory_error(t) : (margin_ - 1) * static_cast<double>(room[t]));
  return room;
}

}  // namespace protrain::plan
