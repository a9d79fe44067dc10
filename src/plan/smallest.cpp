// The plan for budgets in which the search finds none, and the figures that a refusal of such budgets quotes.
#include <algorithm>
#include <set>
#include <tuple>

#include "plan/search.h"

namespace protrain::plan {

namespace {

// Limits for the number of instructions in all Programs that were laid out. Below kFewInstructions, every candidate is
// laid out. From there up to kMostInstructions, a candidate is laid out only if its estimate is smaller than the
// smallest plan so far.
constexpr std::size_t kFewInstructions = 30'000, kMostInstructions = 300'000;

// Fallback lays out a few plans that need little memory and picks the one that lacks the fewest bytes. A refusal quotes
// this plan's bytes, so times play no part in the choice: the same session must always be told the same figures.
class Fallback {
 public:
  Fallback(const graph::Graph &graph, const Durations &durations, const Terms &terms, const LayOut &lay_out)
      : terms_(terms),
        trials_(graph, lay_out),
        outline_(graph, durations),
        space_(space_of(graph, outline_, durations, terms)) {
    for (std::uint64_t bytes : space_.chunk_bytes) chunkings_.emplace_back(graph, outline_, durations, terms, bytes);
  }

  // Lays out one candidate after another, always the one with the smallest estimate of bytes. Before each pick,
  // corrects every estimate by the error that the closed form made for the most similar candidate laid out so far.
  Smallest run() {
    gather();
    while (!candidates_.empty() && trials_.instructions() < kMostInstructions) {
      std::vector<Bytes> bytes;
      for (const Candidate &candidate : candidates_) bytes.push_back(corrected(candidate));
      const auto pick = std::ranges::min_element(bytes, [&](const Bytes &a, const Bytes &b) { return smaller(a, b); }) -
                        bytes.begin();
      if (trials_.instructions() >= kFewInstructions &&
          !smaller(bytes[static_cast<std::size_t>(pick)], least().cost.bytes))
        break;
      const Candidate candidate = candidates_[static_cast<std::size_t>(pick)];
      candidates_.erase(candidates_.begin() + pick);
      relieve_host(trials_.add(candidate));
    }
    return {.point = {least().candidate.choice, least().cost},
            .lacks = first_lacking(least().cost.bytes, terms_.capacity)};
  }

 private:
  std::uint64_t excess(const Bytes &bytes, Tier tier) const {
    return bytes[tier] - std::min(bytes[tier], terms_.capacity[tier]);
  }

  // True if a plan with the bytes `a` is better than one with `b`. Compares the bytes that the device lacks first, then
  // the bytes that host and disk lack together. In this order the figure for the device does not depend on what the
  // other tiers lack. If both plans lack the same, the plan that takes less of the disk is better, then the plan that
  // takes less of the device.
  bool smaller(const Bytes &a, const Bytes &b) const {
    const auto order = [&](const Bytes &bytes) {
      return std::tuple(excess(bytes, Tier::device), excess(bytes, Tier::host) + excess(bytes, Tier::disk),
                        bytes[Tier::disk], bytes[Tier::device]);
    };
    return order(a) < order(b);
  }

  const Trial &least() const {
    return *std::ranges::min_element(
        trials_.all(), [&](const Trial &a, const Trial &b) { return smaller(a.cost.bytes, b.cost.bytes); });
  }

  Bytes corrected(const Candidate &candidate) const {
    Bytes bytes = candidate.estimate.bytes;
    if (const Trial *near = trials_.nearest(candidate.choice); near != nullptr)
      for (const Tier t : kTiers) bytes[t] = shifted(bytes[t], near->memory_error(t));
    return bytes;
  }

  // Gathers candidates that need little memory. Each has one or two buffers for chunks. None, half or all of the blocks
  // swap. The blocks that do not swap are either all recomputed or all selective. If no block swaps, there is a third
  // kind of candidate: the last block is selective, because backward needs its values at once, and all other blocks are
  // recomputed.
  void gather() {
    for (const Chunking &chunking : chunkings_)
      for (int updates : space_.host_updates ? std::vector{0, -1} : std::vector{-1})
        for (const Ordering &ordering : space_.orderings)
          for (int again : {space_.blocks, std::max(space_.blocks - 1, 0), 0})
            for (const auto &[buffers, swaps] : {std::pair(1, 0), std::pair(2, 0), std::pair(1, space_.blocks / 2),
                                                 std::pair(1, space_.blocks), std::pair(2, space_.blocks)}) {
              const int staying = space_.blocks - swaps, recomputed = std::min(again, staying);
              Choice choice = with_terms({.n_buffer = buffers,
                                          .n_swap = swaps,
                                          .n_checkpoint = recomputed,
                                          .n_selective = staying - recomputed,
                                          .n_device_update = updates,
                                          .n_deferred = ordering.n_deferred,
                                          .chunk_bytes = chunk_bytes_of(chunking),
                                          .order = ordering.order},
                                         terms_);
              for (const int slack : std::set{0, choice.slack}) {
                choice.slack = slack;
                gather_chunks(chunking, choice);
              }
            }
  }

  // Adds up to four candidates. In the first two all chunks persist, whole or as shards. In the third all chunks rest
  // on the disk. In the fourth no chunk persists: the host holds as many chunks as fit, or all if there is no disk. If
  // device and host share their memory, there is a fourth candidate only for several ranks: all chunks rest in the
  // shared memory as shards.
  void gather_chunks(const Chunking &chunking, Choice choice) {
    const Footprint footprint(chunking, choice, choice.n_device_update < 0 ? 1 : 0);
    const std::size_t n = footprint.chunks();
    const bool disk = terms_.capacity[Tier::disk] > 0, host = !terms_.shared_memory && terms_.capacity[Tier::host] > 0;
    add(footprint, choice, n, 0);
    if (space_.n_whole.size() > 1) {
      Choice sharded = choice;
      sharded.n_whole = 0;
      add(Footprint(chunking, sharded, choice.n_device_update < 0 ? 1 : 0), sharded, n, 0);
    }
    if (disk) add(footprint, choice, 0, 0);
    if (terms_.shared_memory && terms_.ranks > 1) add(footprint, choice, 0, n);
    if (host) add(footprint, choice, 0, disk ? footprint.fitting_host(0, terms_.capacity[Tier::host]) : n);
  }

  void add(const Footprint &footprint, Choice choice, std::size_t persist, std::size_t on_host) {
    choice.n_persist = static_cast<int>(persist);
    choice.n_host = static_cast<int>(on_host);
    const auto same = [&](const Candidate &candidate) { return same_integers(candidate.choice, choice); };
    if (std::ranges::any_of(candidates_, same) ||
        std::ranges::any_of(trials_.all(), [&](const Trial &trial) { return same(trial.candidate); }))
      return;
    const auto buffers = static_cast<std::size_t>(choice.n_buffer);
    const std::size_t used = footprint.buffered(persist) == 0 ? 0 : buffers;
    candidates_.push_back({choice, {.bytes = footprint.bytes(persist, on_host, used)}});
  }

  // Adds a plan that relieves the host, if the host is too small and the device is not. With a disk, the disk takes
  // what the host cannot hold. Without one, chunks persist until the others fit the host or the next chunk no longer
  // fits the device.
  void relieve_host(const Trial &trial) {
    const Choice choice = trial.candidate.choice;
    if (terms_.shared_memory || excess(trial.cost.bytes, Tier::device) > 0 || excess(trial.cost.bytes, Tier::host) == 0)
      return;
    const Footprint footprint(chunkings_[chunking_of(choice)], choice, choice.n_device_update < 0 ? 1 : 0);
    const std::uint64_t on_host = shifted(terms_.capacity[Tier::host], -trial.memory_error(Tier::host));
    const std::uint64_t on_device = shifted(terms_.capacity[Tier::device], -trial.memory_error(Tier::device));
    const std::size_t n = footprint.chunks();
    std::size_t persist = static_cast<std::size_t>(choice.n_persist);
    if (terms_.capacity[Tier::disk] > 0)
      return add(footprint, choice, persist, footprint.fitting_host(persist, on_host));
    const auto next_fits = [&] {
      return footprint.bytes(persist + 1, 0, static_cast<std::size_t>(choice.n_buffer))[Tier::device] <= on_device;
    };
    while (persist < n && footprint.bytes(persist, n - persist, 1)[Tier::host] > on_host && next_fits()) ++persist;
    add(footprint, choice, persist, n - persist);
  }

  std::size_t chunking_of(const Choice &choice) const {
    return static_cast<std::size_t>(std::ranges::find(space_.chunk_bytes, choice.chunk_bytes) -
                                    space_.chunk_bytes.begin());
  }
  std::uint64_t chunk_bytes_of(const Chunking &chunking) const {
    return space_.chunk_bytes[static_cast<std::size_t>(&chunking - chunkings_.data())];
  }

  const Terms &terms_;
  Trials trials_;
  const Outline outline_;
  const Space space_;
  std::vector<Chunking> chunkings_;  // one for each of the space's chunk_bytes
  std::vector<Candidate> candidates_;
};

}  // namespace

std::optional<Tier> first_lacking(const Bytes &bytes, const Bytes &capacity) {
  for (const Tier t : kTiers)
    if (bytes[t] > capacity[t]) return t;
  return std::nullopt;
}

Smallest smallest(const graph::Graph &graph, const Durations &durations, const Terms &terms, const LayOut &lay_out) {
  return Fallback(graph, durations, terms, lay_out).run();
}

}  // namespace protrain::plan
