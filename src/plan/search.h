// The search for a plan (ProTrain, section 3.3): the closed form ranks every point of the space, those that look best
// are laid out and simulated, and what they turn out to be corrects the ranking of their neighbours. Where everything
// fits, what next to no time makes again is not kept, if much memory comes of it. The result is a function of graph,
// profile and budgets alone: no durations decides when it ends.
#pragma once

#include <optional>

#include "plan/trials.h"

namespace protrain::plan {

struct Point {
  Choice choice;
  LaidOut laid_out;
};

// When updates run: order, and n_deferred to begin with.
struct Ordering {
  OptimizerOrder order = OptimizerOrder::overlap;
  int n_deferred = 0;
};

// The values that the search may give to everything but n_persist, n_buffer, n_host, n_device_update and n_deferred.
struct Space {
  std::vector<std::uint64_t> chunk_bytes;  // about half a block, a block, two (the grid of appendix B.1 in the model's
                                           // own measure)
  bool host_updates = false;               // an optimizer may run on the host
  std::vector<Ordering> orderings;
  int blocks = 0;
  int most_swap = 0;  // as many as the way out can hide behind compute (the paper's N_interval)
};
Space space_of(const graph::Graph &graph, const Outline &outline, const Durations &durations, const Terms &terms);

struct Found {
  std::optional<Point> best;      // none: nothing that was laid out fits
  std::optional<Point> next;      // the second best
  std::optional<Point> resident;  // where nothing moves and nothing is computed again, whether or not it fits
  bool all_fits = false;          // it does; the best keeps all, or selectively
  std::size_t ranked = 0, laid_out = 0;
};

Found search(const graph::Graph &graph, const Durations &durations, const Terms &terms, const LayOut &lay_out);

// The plan to fall back on: of a few that are small by their nature (nothing persists, or as much as must; all blocks
// compute again, all but the last, or swap; what keeps does so selectively) the one that lacks least of what there is,
// first of the device, then of the others; of several the one that needs least of the disk, then of the device. What
// does not fit it is refused. `lacks`: the first tier that is too small for it; none where it fits.
struct Smallest {
  Point point;
  std::optional<Tier> lacks;
};
Smallest smallest(const graph::Graph &graph, const Durations &durations, const Terms &terms, const LayOut &lay_out);

// Everything that `choice` and the terms say of a plan.
Choice with_terms(Choice choice, const Terms &terms);

}  // namespace protrain::plan
