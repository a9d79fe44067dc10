// The closed form: what a step takes and holds under a choice, by the equations of ProTrain (arXiv 2406.08334, sections
// 3.2 and 3.3; numbers are the paper's) and what those who followed had to add. It only ranks: the laid-out Program
// decides what fits, the simulator what it takes.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/durations.h"
#include "plan/outline.h"
#include "plan/plan.h"

namespace protrain::plan {

using Bytes = PerTier<std::uint64_t>;

// What is fixed before a plan is chosen.
struct Terms {
  bool shared_memory = false;  // device and host are one memory
  bool barrier_only = false;   // what the options ask for needs the norm before the first update
  bool accumulates = false;    // gradients are summed over batches
  std::vector<bool> trained;   // per parameter
  OptimizerBytes optimizer;
  Bytes capacity{};  // of each tier; of the disk 0: there is none

  // Whether updates may run in the next step's forward. Where memory is one they would take compute's time there.
  bool defer() const { return !shared_memory && !accumulates; }
};

struct Estimate {
  double seconds = 0;
  int n_deferred = 0;  // overlap order: updates on the host that backward has no time for
  Bytes bytes{};
};

// The model cut into chunks of one size: bytes, and the seconds of compute that come with each.
struct Chunking {
  struct Weight {
    std::uint64_t weights = 0, state = 0, gradient = 0;  // state: the optimizer's; gradient: as backward makes it
    double forward = 0, backward = 0;
    double device_update = 0, host_update = 0;
    std::vector<std::pair<std::size_t, double>> blocks;  // whose parameters it holds, and which share of them
  };
  Chunking(const graph::Graph &graph, const Outline &outline, const Durations &durations, const Terms &terms,
           std::uint64_t chunk_bytes);

  const Outline &outline;
  const Durations &durations;
  const Terms &terms;
  std::vector<Weight> chunks;
  // The most that as many chunks in a row weigh, of those from a chunk on: in_a_row[from][count].
  std::vector<std::vector<std::uint64_t>> in_a_row;
};

// For one chunking, one set of block modes, one order of the optimizer and one mix of its places: all that then depends
// on n_persist, n_host and n_buffer is a difference of prefix sums.
class CostModel {
 public:
  // `base`: n_swap, n_checkpoint, n_selective, order and, where updates wait for the norm, whether n_deferred is 0 (in
  // the overlap order the estimate says it); no more blocks than there are. `on_device`: the share of the
  // chunks that do not persist whose optimizer runs on the device, 0 to 1. Each chunk weighs as their mean does, since
  // the two kinds are spread evenly.
  CostModel(const Chunking &chunking, const Choice &base, double on_device);

  std::size_t chunks() const { return chunking_.chunks.size(); }
  // The most chunks after the first `persist` that `bytes` of host memory hold.
  std::size_t fitting_host(std::size_t persist, std::uint64_t bytes) const;
  // The most buffers that `bytes` of device memory leave room for; 0: not even one.
  std::size_t fitting_buffers(std::size_t persist, std::uint64_t bytes) const;
  Estimate estimate(std::size_t persist, std::size_t on_host, std::size_t buffers) const;

 private:
  // Seconds that something takes on each queue.
  struct Load {
    double compute = 0, up = 0, down = 0, disk = 0, host = 0;
    Load operator+(const Load &other) const;
    Load operator*(double share) const;
  };
  // Prefix sums over the chunks, as if all rested in one tier.
  struct Sums {
    std::vector<double> forward, backward, cached;  // the equations' terms; cached: with no second fetch
    std::vector<double> fetch;                      // what one buffer alone adds: nothing is fetched while it is in use
    std::vector<double> after;                      // barrier order: the optimizer's part
    std::vector<double> ways, disk, host;           // seconds of all moves, of the disk's, of the host's optimizer
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

  // Bytes that do not depend on where chunks rest.
  struct Held {
    std::uint64_t activations = 0, swapped = 0;  // on the device, and where swaps go
    std::uint64_t in_flight = 0;                 // of chunks that are being updated, on the device
  };

  const Chunking &chunking_;
  const Choice base_;
  const double on_device_;
  const bool shares_cores_;
  const bool spreads_;             // what backward has no time for of the host's updates, the next forward does
  const double lost_beside_disk_;  // share of compute's speed
  const std::vector<BlockMode> modes_;
  std::vector<double> backward_;     // seconds of each chunk, with what is computed again
  std::vector<std::uint64_t> rest_;  // prefix sums
  PerTier<Sums> sums_;
  Held held_;
  double outside_ = 0;  // seconds outside of blocks
};

}  // namespace protrain::plan
