// Shards: a shard is the elements of a parameter that one rank owns. A rank keeps optimizer state and sums of gradients
// only for its own shards.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace protrain::graph {

// The number of elements in a grain, the unit in which parameters are cut: every shard begins at a multiple of it. The
// squared norm of a gradient is summed within each grain, then over all grains in a fixed tree (arith/norm_tree.h). So
// the norm's bits do not depend on how shards are cut.
inline constexpr std::int64_t kGrain = std::int64_t{1} << 14;

struct Shards {
  int rank = 0, ranks = 1;
  // Per parameter: ranks + 1 indices of elements. Rank r owns the elements from bounds[r] to bounds[r + 1].
  std::vector<std::vector<std::int64_t>> bounds;

  std::int64_t begin(std::size_t parameter) const { return begin(parameter, rank); }
  std::int64_t begin(std::size_t parameter, int of) const { return bounds[parameter][static_cast<std::size_t>(of)]; }
  std::int64_t elements(std::size_t parameter) const { return elements(parameter, rank); }
  std::int64_t elements(std::size_t parameter, int of) const { return begin(parameter, of + 1) - begin(parameter, of); }
};

// Divides the graph's parameters among the ranks as evenly as whole grains allow. The parameters' sizes and their order
// alone decide, so all ranks find the same bounds.
Shards cut_shards(const Graph &graph, int rank, int ranks);

}  // namespace protrain::graph
