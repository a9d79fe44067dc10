// Chunking: a model's parameters cut into chunks of one size, with what the closed form (cost.h) needs to know of each
// chunk. It is made once for each size and serves every choice of that size.
#pragma once

#include <cstdint>
#include <utility>
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

// The model's parameters cut into chunks for one value of chunk_bytes, with each chunk's bytes and seconds of compute.
struct Chunking {
  struct Weight {
    std::uint64_t weights = 0, gradient = 0;                         // bytes of the whole chunk
    std::uint64_t weights_shard = 0, gradient_shard = 0, state = 0;  // bytes of a rank's shards; state: the optimizer's
    double forward = 0, backward = 0;                                // seconds of the nodes that use the chunk
    double device_update = 0, host_update = 0;                       // seconds of the update of one rank's shards
    std::vector<std::pair<std::size_t, double>> blocks;  // a block, and the fraction of its bytes in the chunk

    // Returns the bytes that one rank's shards of the chunk take where they rest. In barrier order the gradient waits
    // there too.
    std::uint64_t rest_of_shard(OptimizerOrder order) const {
      return weights_shard + state + (order == OptimizerOrder::barrier ? gradient_shard : 0);
    }
  };
  Chunking(const graph::Graph &graph, const Outline &outline, const Durations &durations, const Terms &terms,
           std::uint64_t chunk_bytes);

  // True if `choice` shards persistent chunks too.
  bool shards_all(const Choice &choice) const { return terms.ranks > 1 && choice.n_whole == 0; }

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

}  // namespace protrain::plan
