// The closed form: seconds and bytes of a step under a choice, by the equations of ProTrain (arXiv 2406.08334, sections
// 3.2 and 3.3; numbers are the paper's) and terms that later work added. It only ranks: the laid-out Program
// decides what fits, the simulator how long it takes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/durations.h"
#include "plan/outline.h"
#include "plan/plan.h"

namespace protrain::plan {

using Bytes = PerTier<std::uint64_t>;

// Facts that are fixed before a plan is chosen.
struct Terms {
  bool shared_memory = false;  // device and host are one memory
  bool barrier_only = false;   // the options need the norm before the first update
  bool accumulates = false;    // gradients are summed over batches
  std::vector<bool> trained;   // per parameter
  OptimizerBytes optimizer;
  Bytes capacity{};  // of each tier; 0 for the disk: there is none

  // True if updates may run in the next step's forward. On shared memory they would take compute's time there.
  bool defer() const { return !shared_memory && !accumulates; }
};

struct Estimate {
  double seconds = 0;
  int n_deferred = 0;  // overlap order: updates on the host that backward has no time for
  Bytes bytes{};
};

// The model cut into chunks of one size, with the bytes of each and its seconds of compute.
struct Chunking {
  struct Weight {
    std::uint64_t weights = 0, state = 0, gradient = 0;  // state: the optimizer's; gradient: as backward makes it
    double forward = 0, backward = 0;
    double device_update = 0, host_update = 0;
    std::vector<std::pair<std::size_t, double>> blocks;  // whose parameters it holds, with the share of each
  };
  Chunking(const graph::Graph &graph, const Outline &outline, const Durations &durations, const Terms &terms,
           std::uint64_t chunk_bytes);

  const Outline &outline;
  const Durations &durations;
  const Terms &terms;
  std::vector<Weight> chunks;
  // in_a_row[from][count]: the most that `count` consecutive chunks weigh, among the chunks from `from` on.
  std::vector<std::vector<std::uint64_t>> in_a_row;
};

// A CostModel holds for one chunking, one set of block modes, one order of the optimizer and one mix of its places.
// Everything that then depends on n_persist, n_host and n_buffer is a difference of prefix sums, so an estimate
// is cheap.
class CostModel {
 public:
  // `base` gives n_swap, n_checkpoint, n_selective and order, for no more blocks than there are. In barrier order it
  // also says whether n_deferred is 0; in overlap order the estimate finds n_deferred. `on_device`, 0 to 1: the share
  // of non-persistent chunks whose optimizer runs on the device. Each chunk weighs as their mean does, since the two
  // kinds are spread evenly.
  CostModel(const Chunking &chunking, const Choice &base, double on_device);

  std::size_t chunks() const { return chunking_.chunks.size(); }
  // The most chunks after the first `persist` that fit in `bytes` of host memory.
  std::size_t fitting_host(std::size_t persist, std::uint64_t bytes) const;
  // The most buffers that fit in `bytes` of device memory; 0: not even one.
  std::size_t fitting_buffers(std::size_t persist, std::uint64_t bytes) const;
  Estimate estimate(std::size_t persist, std::size_t on_host, std::size_t buffers) const;

 private:
  // Seconds of work on each queue.
  struct Load {
    double compute = 0, up = 0, down = 0, disk = 0, host = 0;
    Load operator+(const Load &other) const;
    Load operator*(double share) const;
  };
  // Prefix sums over the chunks, as if all rested in one tier.
  struct Sums {
    std::vector<double> forward, backward, cached;  // terms of the equations; cached: without the second fetch
    std::vector<double> fetch;                      // added by a single buffer: nothing is fetched while it is in use
    std::vector<double> after;                      // barrier order: the optimizer's part
    std::vector<double> ways, disk, host;  // seconds of all moves, of the disk's moves, of the host's optimizer
  };

  const Chunking::Weight &weight(std::size_t chunk) const { return chunking_.chunks[chunk]; }
  void weigh();
  void sum_up(Tier tier);
  void hold();
  Load prefetch(std::size_t chunk, Tier tier) const;  // eq. 4
  Load settle(std::size_t chunk, Tier tier) const;    // eq. 6
  Load update(std::size_t chunk, Tier tier) const;
  Load update_on_device(std::size_t chunk, Tier tier) const;
  Load update_on_host(std::size_t chunk, Tier tier) const;
  Load swap(std::size_t chunk, bool out) const;
  std::uint64_t rest(std::size_t chunk) const;
  std::uint64_t brought(std::size_t chunk) const;
  double longest(const Load &load) const;

  // Bytes that do not depend on the tiers of chunks.
  struct Held {
    std::uint64_t activations = 0, swapped = 0;  // on the device; in the tier that swaps go to
    std::uint64_t in_flight = 0;                 // on the device, of the chunk that is being updated
  };

  const Chunking &chunking_;
  const Choice base_;
  const double on_device_;
  const bool shares_cores_;
  const bool spreads_;             // host updates that backward has no time for run beside the next forward
  const double lost_beside_disk_;  // share of compute's speed
  const std::vector<BlockMode> modes_;
  std::vector<double> backward_;     // seconds of each chunk, recomputation included
  std::vector<std::uint64_t> rest_;  // prefix sums of rest()
  PerTier<Sums> sums_;
  Held held_;
  double outside_ = 0;  // seconds outside of blocks
};

}  // namespace protrain::plan
