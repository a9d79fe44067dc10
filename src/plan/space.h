// The space of choices among which a search chooses, for one model on one machine.
#pragma once

#include <vector>

#include "plan/cost.h"
#include "plan/outline.h"

namespace protrain::plan {

// The order of updates, and the n_deferred that a search starts from.
struct Ordering {
  OptimizerOrder order = OptimizerOrder::overlap;
  int n_deferred = 0;
};

// The values that the search may give to the fields of a Choice other than n_persist, n_buffer, n_host, n_device_update
// and n_deferred.
struct Space {
  std::vector<std::uint64_t> chunk_bytes;  // about half a block, one block, two (appendix B.1, in units of blocks)
  bool host_updates = false;               // an optimizer may run on the host
  std::vector<Ordering> orderings;
  // The values of Choice::n_whole that the search may try: -1 (every rank has all persistent chunks whole), and 0
  // (persistent chunks are sharded) if several ranks may shard them. The search tries 0 only if nothing else fits. In
  // tests where other plans fitted, trying 0 made a step at most 0.2 % faster and the search up to twice as long.
  std::vector<int> n_whole = {-1};
  int blocks = 0;
  int most_swap = 0;  // the most swaps that compute can hide: `blocks` over the paper's N_interval
};
Space space_of(const graph::Graph &graph, const Outline &outline, const Durations &durations, const Terms &terms);

// Returns `choice` after setting the fields that follow from `terms`: shared_memory, ranks and slack. For some terms,
// order and n_device_update are set too.
Choice with_terms(Choice choice, const Terms &terms);

}  // namespace protrain::plan
