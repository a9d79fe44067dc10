// The space of choices that a search has for one model on one machine.
#pragma once

#include <vector>

#include "plan/cost.h"
#include "plan/outline.h"

namespace protrain::plan {

// The timing of updates: their order, and n_deferred to begin with.
struct Ordering {
  OptimizerOrder order = OptimizerOrder::overlap;
  int n_deferred = 0;
};

// The values that the search may give to all but n_persist, n_buffer, n_host, n_device_update and n_deferred.
struct Space {
  std::vector<std::uint64_t> chunk_bytes;  // about half a block, one, two (appendix B.1 in units of blocks)
  bool host_updates = false;               // an optimizer may run on the host
  std::vector<Ordering> orderings;
  int blocks = 0;
  int most_swap = 0;  // the most swaps that compute can hide (the paper's N_interval)
};
Space space_of(const graph::Graph &graph, const Outline &outline, const Durations &durations, const Terms &terms);

// Adds to `choice` what the terms decide.
Choice with_terms(Choice choice, const Terms &terms);

}  // namespace protrain::plan
