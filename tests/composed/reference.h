// Computes a graph in float64. Also tells which branches operators take, and how far rounding would move the results.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/op.h"

namespace protrain::test {

using Values = std::vector<graph::Array>;  // by value id
using Data = std::map<graph::ValueId, graph::Array>;

class Reference {
 public:
  explicit Reference(graph::Graph graph);

  const graph::Graph &graph() const { return graph_; }
  // Computes all values. With noise, each number that is computed and not just copied is multiplied by a random factor
  // between 1 - noise and 1 + noise. `seed` determines the factors.
  Values run(const Data &data, double noise = 0, std::uint64_t seed = 0) const;

  // The branches that operators with kinks or jumps take: the side of the kink on which each element is, and the
  // smallest relative distance to a kink. An element exactly on a kink is on neither side and does not count for the
  // distance.
  struct Branches {
    std::vector<signed char> sides;
    double margin = 1;
  };
  Branches branches(const Values &values) const;

 private:
  graph::Graph graph_;
  std::vector<const ops::Op *> ops_;             // by node
  std::vector<std::vector<graph::Type>> types_;  // by node: the types of its outputs
};

}  // namespace protrain::test
