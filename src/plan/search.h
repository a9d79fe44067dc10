// The search for a plan (ProTrain, section 3.3): the closed form ranks every point of the space, those that look best
// are laid out and simulated, and what they turn out to be corrects the ranking of their neighbours. Where everything
// fits, what next to no time makes again is not kept, if much memory comes of it. The result is a function of graph,
// profile and budgets alone: no clock decides when it ends.
#pragma once

#include <optional>

#include "plan/space.h"
#include "plan/trials.h"

namespace protrain::plan {

struct Point {
  Choice choice;
  LaidOut laid_out;
};

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

}  // namespace protrain::plan
