// Divides every parameter among the ranks, in whole grains.
#include "graph/shards.h"

#include <algorithm>
#include <numeric>

namespace protrain::graph {

namespace {

// Returns how many of a parameter's grains each rank gets. First the grains are divided equally. Then the grains that
// are left over go, one each, to the ranks that own the fewest elements so far.
std::vector<std::int64_t> grains_of(std::int64_t grains, const std::vector<std::int64_t> &owned) {
  const auto ranks = static_cast<std::int64_t>(owned.size());
  std::vector<std::size_t> by_load(owned.size());
  std::iota(by_load.begin(), by_load.end(), std::size_t{0});
  std::ranges::stable_sort(by_load, {}, [&](std::size_t r) { return owned[r]; });
  std::vector<std::int64_t> counts(owned.size(), grains / ranks);
  for (std::int64_t i = 0; i < grains % ranks; ++i) ++counts[by_load[static_cast<std::size_t>(i)]];
  return counts;
}

}  // namespace

Shards cut_shards(const Graph &graph, int rank, int ranks) {
  Shards shards{.rank = rank, .ranks = ranks, .bounds = {}};
  std::vector<std::int64_t> owned(static_cast<std::size_t>(ranks), 0);
  for (ValueId id : graph.parameters) {
    const std::int64_t elements = element_count(graph.value(id).type.shape);
    const std::vector<std::int64_t> counts = grains_of((elements + kGrain - 1) / kGrain, owned);
    std::vector<std::int64_t> &bounds = shards.bounds.emplace_back(1, 0);
    for (std::size_t r = 0; r < counts.size(); ++r) {
      bounds.push_back(std::min(elements, bounds.back() + counts[r] * kGrain));
      owned[r] += bounds[r + 1] - bounds[r];
    }
  }
  return shards;
}

}  // namespace protrain::graph
