// The plan to fall back on, and the figures of a refusal.
#include <algorithm>
#include <tuple>

#include "plan/search.h"

namespace protrain::plan {

namespace {

class Fallback {
 public:
  Fallback(const graph::Graph &graph, const Clock &clock, const Terms &terms, const LayOut &lay_out)
      : graph_(graph),
        terms_(terms),
        lay_out_(lay_out),
        outline_(graph, clock),
        space_(space_of(graph, outline_, clock, terms)),
        clock_(clock) {}

  Smallest run() {
    for (std::uint64_t chunk_bytes : space_.chunk_bytes) {
      const Chunking chunking(graph_, outline_, clock_, terms_, chunk_bytes);
      for (Tier update : space_.updates)
        // What the last block drops it needs again at once: with it or without, either may be smaller by a little.
        for (int again : {space_.blocks, std::max(space_.blocks - 1, 0), 0})
          for (const auto &[buffers, swaps] : {std::pair(1, 0), std::pair(2, 0), std::pair(1, space_.most_swap / 2),
                                               std::pair(1, space_.most_swap), std::pair(2, space_.most_swap)})
            consider_all(chunking, without_slack({.n_buffer = buffers,
                                                  .n_swap = swaps,
                                                  .n_checkpoint = std::min(again, space_.blocks - swaps),
                                                  .update = update,
                                                  .chunk_bytes = chunk_bytes}));
    }
    Smallest smallest{.point = *best_};
    for (std::size_t t = kTierCount; t-- > 0;)
      if (best_->laid_out.bytes[t] > terms_.capacity[t]) smallest.lacks = static_cast<Tier>(t);
    return smallest;
  }

 private:
  Choice without_slack(const Choice &choice) const {
    Choice frugal = with_terms(choice, terms_);
    frugal.slack = 0;
    return frugal;
  }

  std::uint64_t excess(const Bytes &bytes, std::size_t tier) const {
    return bytes[tier] - std::min(bytes[tier], terms_.capacity[tier]);
  }

  // First what the device lacks, then what the others do: so the figure of one tier does not depend on how much another
  // is short of. Of what lacks equally little, the one that needs least of the device.
  bool smaller(const Bytes &a, const Bytes &b) const {
    const auto order = [&](const Bytes &bytes) {
      return std::tuple(excess(bytes, 0), excess(bytes, 1) + excess(bytes, 2), bytes[0]);
    };
    return order(a) < order(b);
  }

  std::uint64_t consider(const Choice &choice) {
    const Point point{choice, lay_out_(expand(graph_, choice))};
    if (!best_ || smaller(point.laid_out.bytes, best_->laid_out.bytes)) best_ = point;
    return point.laid_out.bytes[0];
  }

  void consider_all(const Chunking &chunking, Choice choice) {
    const CostModel model(chunking, choice);
    const std::size_t n = model.chunks();
    const bool disk = terms_.capacity[2] > 0, host = !terms_.shared_memory && terms_.capacity[1] > 0;
    choice.n_persist = disk || host ? 0 : static_cast<int>(n);
    choice.n_host = host ? static_cast<int>(disk ? model.fitting_host(0, terms_.capacity[1]) : n) : 0;
    const std::uint64_t least = consider(choice);
    if (disk && choice.n_host > 0) {
      choice.n_host = 0;
      consider(choice);
    }
    if (disk || host) {
      choice.n_persist = static_cast<int>(n);
      consider(choice);
      choice.n_persist = 0;
    }
    if (!disk && host && least <= terms_.capacity[0]) fill_device(choice, n);
  }

  // The most that the device takes off the host, by halving: the more persists the more the device needs.
  void fill_device(Choice choice, std::size_t n) {
    std::size_t fits = 0, too_many = n + 1;
    while (fits + 1 < too_many) {
      const std::size_t middle = (fits + too_many) / 2;
      choice.n_persist = static_cast<int>(middle);
      choice.n_host = static_cast<int>(n - middle);
      (consider(choice) <= terms_.capacity[0] ? fits : too_many) = middle;
    }
  }

  const graph::Graph &graph_;
  const Terms &terms_;
  const LayOut &lay_out_;
  const Outline outline_;
  const Space space_;
  const Clock &clock_;
  std::optional<Point> best_;
};

}  // namespace

Smallest smallest(const graph::Graph &graph, const Clock &clock, const Terms &terms, const LayOut &lay_out) {
  return Fallback(graph, clock, terms, lay_out).run();
}

}  // namespace protrain::plan
