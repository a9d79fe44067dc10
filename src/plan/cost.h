// The closed form: equations that estimate the seconds and bytes of a step from a Choice (plan.h). They are the
// equations of ProTrain (arXiv 2406.08334, sections 3.2 and 3.3), extended by what the paper does not have. Comments
// cite the paper's numbers of equations. The estimates only rank choices. The laid-out Program decides whether a choice
// fits, and the simulator tells how long its step takes.
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
  bool barrier_only = false;   // the options need the norm of all gradients before the first update
  bool accumulates = false;    // gradients are summed over batches
  int ranks = 1;
  std::vector<bool> trained;  // per parameter
  OptimizerBytes optimizer;
  Bytes capacity{};        // of each tier; the disk's is 0 if there is none
  std::uint64_t sums = 0;  // bytes on the device of gradient sums that belong to no chunk

  // True if chunks may rest on the host, on the disk, or as shards.
  bool can_rest_elsewhere() const { return capacity[Tier::host] > 0 || capacity[Tier::disk] > 0 || ranks > 1; }
  // True if updates may be deferred to the next step's forward. If device and host are one memory, an update
  // would slow that forward down and gain nothing.
  bool defer() const { return !shared_memory && !accumulates; }
};

struct Estimate {
  double seconds = 0;
  int n_deferred = 0;  // overlap order: updates on the host that do not finish during backward
  Bytes bytes{};
};

// The model's parameters cut into chunks for one value of chunk_bytes, with each chunk's bytes and seconds of compute.
struct Chunking {
  struct Weight {
    std::uint64_t weights = 0, gradient = 0;                         // bytes of the whole chunk
    std::uint64_t weights_shard = 0, gradient_shard = 0, state = 0;  // bytes of a rank's shards; state: the optimizer's
    double forward = 0, backward = 0;                                // seconds of the nodes that use the chunk
    double device_update = 0, host_update = 0;                       // seconds of the update of one rank's shards
    std::vector<std::pair<std::size_t, double>> blocks;  // a block, and the fraction of its bytes in the chunk
  };
  Chunking(const graph::Graph &graph, const Outline &outline, const Durations &durations, const Terms &terms,
           std::uint64_t chunk_bytes);

  const Outline &outline;
  const Durations &durations;
  const Terms &terms;
  std::vector<Weight> chunks;
  std::vector<std::size_t> order;  // resting_order() of the chunks
  // in_a_row[from][count] leaves out the first `from` chunks of `order`. Among the other chunks, in the order of the
  // model, it is the most bytes of weights that any `count` successive chunks have.
  std::vector<std::vector<std::uint64_t>> in_a_row;

 private:
  std::uint64_t shard_of(std::uint64_t bytes) const;
  void add_trained(const graph::Type &type, std::size_t p, Weight &chunk) const;
  void find_neighbours();
};

// CostModel estimates the seconds and bytes of choices. One CostModel is made for one chunking, one set of block modes,
// one order of updates and one share of updates on the device. The terms that depend on n_persist, n_host and n_buffer
// are then differences of prefix sums, so an estimate is cheap and the search can afford one for every point.
class CostModel {
 public:
  // `base` gives order, n_whole, n_swap, n_checkpoint and n_selective. The last three add up to at most the number of
  // blocks. n_whole is 0 if persistent chunks are sharded, and -1 if they are whole. In barrier order, updates are
  // deferred if n_deferred of `base` is not 0. In overlap order, n_deferred of `base` is ignored, because the estimate
  // finds this number.
  //   `on_device` is the share, from 0 to 1, of non-persistent chunks that are updated on the device. The other
  // non-persistent chunks are updated on the host. Both kinds are spread evenly over the model, so each non-persistent
  // chunk is priced as the mean of an update on the device and an update on the host, weighted by `on_device`.
  CostModel(const Chunking &chunking, const Choice &base, double on_device);

  std::size_t chunks() const { return chunking_.chunks.size(); }
  // Returns the number of chunks whose weights need buffers on the device if `persist` chunks persist.
  std::size_t buffered(std::size_t persist) const { return chunks() - whole(persist); }
  // Returns how many successive chunks fit in `bytes` of host memory, in resting order. The first of them is the chunk
  // after the `persist` persistent chunks.
  std::size_t fitting_host(std::size_t persist, std::uint64_t bytes) const;
  // Returns how many buffers fit in `bytes` of device memory. 0: not even one.
  std::size_t fitting_buffers(std::size_t persist, std::size_t on_host, std::uint64_t bytes) const;
  Estimate estimate(std::size_t persist, std::size_t on_host, std::size_t buffers) const;

 private:
  // Seconds of work on each queue.
  struct Load {
    double compute = 0, up = 0, down = 0, read = 0, write = 0, host = 0, comm = 0;  // read, write: the disk's
    Load operator+(const Load &other) const;
    Load operator*(double share) const;
  };
  // Seconds summed over chunks that all rest in the same tier.
  struct Sums {
    double forward = 0, backward = 0, cached = 0;  // eq. 3 and 5; cached: backward of chunks that need no fetch
    double fetch = 0;                              // added if there is one buffer, which is never filled while in use
    double after = 0;                              // barrier order: updates that run after backward
    double ways = 0, host = 0;                     // all moves and exchanges; the host's optimizer
    double read = 0, write = 0;                    // the disk's moves: all, during forward, and during backward
    double read_forward = 0, write_forward = 0, read_backward = 0, write_backward = 0;
  };

  // True if persistent chunks are sharded too.
  bool shards_all() const { return chunking_.terms.ranks > 1 && base_.n_whole == 0; }
  // True if there is a disk. In that case resting_order() spreads the chunks on the disk evenly over the model, so the
  // disk works all through forward and backward, and not only next to its own chunks. The sums `forward`, `backward`
  // and `cached` therefore leave out the disk's time. estimate() takes such a sum or the disk's time in the same phase,
  // whichever is longer.
  //   If the plan puts no chunk on the disk, its chunks rest in another order than the one in which the sums are made.
  // This matters only if chunks differ much.
  bool spreads_disk() const { return chunking_.terms.capacity[Tier::disk] > 0; }
  std::size_t whole(std::size_t persist) const { return shards_all() ? 0 : persist; }
  const Chunking::Weight &weight(std::size_t chunk) const { return chunking_.chunks[chunk]; }
  void weigh();
  void sum_up(Tier tier);
  void hold();
  Load prefetch(std::size_t chunk, Tier tier) const;  // eq. 4
  Load settle(std::size_t chunk, Tier tier) const;    // eq. 6
  Load update(std::size_t chunk, Tier tier) const;
  Load update_on_device(std::size_t chunk, Tier tier) const;
  Load update_on_host(std::size_t chunk, Tier tier) const;
  Load swap_out(std::size_t chunk) const;
  Load swap_in(std::size_t chunk) const;
  double moved_by_swaps(std::size_t chunk, Tier from, Tier to) const;
  // Return the bytes of a chunk at rest on one rank. rest() counts the whole weights, rest_of_shard() only the rank's
  // shards of them.
  std::uint64_t rest(std::size_t chunk) const;
  std::uint64_t rest_of_shard(std::size_t chunk) const;
  double exchange(std::uint64_t bytes) const;
  std::uint64_t brought(std::size_t chunk) const;
  double longest(const Load &load) const;
  double disk_seconds(double read, double write) const;
  Tier swap_tier() const { return chunking_.terms.shared_memory ? Tier::disk : Tier::host; }
  Bytes peak_bytes(std::size_t persist, std::size_t on_host, std::size_t buffers) const;

  // Bytes that do not depend on where chunks rest.
  struct Held {
    std::uint64_t activations = 0, swapped = 0;  // activations: on the device; swapped: in the tier that swaps go to
    std::uint64_t in_flight = 0;                 // on the device, for the chunk that is being updated
  };

  const Chunking &chunking_;
  const Choice base_;
  const double on_device_;
  const bool shares_cores_;
  const bool spreads_;             // host updates that do not finish during backward run during the next forward
  const double lost_beside_disk_;  // share of compute's speed that is lost while the disk works
  const std::vector<BlockMode> modes_;
  // Prefix sums of rest() and rest_of_shard().
  struct Resting {
    std::vector<std::uint64_t> whole = {0}, shard = {0};
  };

  std::vector<double> backward_;  // seconds of each chunk, recomputation included
  Resting rest_;
  PerTier<std::vector<Sums>> sums_;  // element i: over the first i chunks in the order in which they rest
  Held held_;
  double outside_ = 0;  // seconds outside of blocks
};

}  // namespace protrain::plan
