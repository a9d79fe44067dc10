// The search for a plan (ProTrain, section 3.3). The closed form ranks the points of the space, or a grid of them if
// there are very many. The points that look best are laid out (lowered to Programs) and simulated. Their results
// correct the ranking of their neighbours. If the resident plan fits, the search takes this plan or, if that saves much
// memory for little time, its selective form. The result is a function of graph, profile and budgets alone: no clock
// decides when the search ends.
#pragma once

#include <optional>

#include "plan/space.h"
#include "plan/trials.h"

namespace protrain::plan {

struct Point {
  Choice choice;
  PlanCost cost;
};

struct SearchResult {
  std::optional<Point> best;      // none: nothing that was laid out fits
  std::optional<Point> next;      // the second best
  std::optional<Point> resident;  // the plan in which nothing moves and nothing is recomputed, whether or not it fits
  bool all_fits = false;          // `resident` fits; `best` is `resident` or its selective form
  std::size_t ranked = 0, laid_out = 0;
};

// `look_ahead` may lay out plans before they are needed. It does not change the result.
SearchResult search(const graph::Graph &graph, const Durations &durations, const Terms &terms, const LayOut &lay_out,
                    const LookAhead &look_ahead = {});

// Lays out the resident plan and, if it fits, its selective form, but no other plan. `best` is empty if it does not
// fit.
SearchResult search_resident(const graph::Graph &graph, const Durations &durations, const Terms &terms,
                             const LayOut &lay_out);

// The plan for budgets in which search() finds no plan. smallest() tries candidates that need little memory. It picks
// the candidate that lacks the least device memory, and among equals the one that lacks the least of host memory and
// disk together. Among further equals it picks the one that takes the least of the disk, then of the device. If even
// this plan does not fit, the budgets are refused. `lacks`: the first tier that is too small for the plan; none: the
// plan fits.
struct Smallest {
  Point point;
  std::optional<Tier> lacks;
};
Smallest smallest(const graph::Graph &graph, const Durations &durations, const Terms &terms, const LayOut &lay_out);
// Returns the first tier in which `bytes` do not fit; none: they fit in all tiers.
std::optional<Tier> first_lacking(const Bytes &bytes, const Bytes &capacity);

}  // namespace protrain::plan
