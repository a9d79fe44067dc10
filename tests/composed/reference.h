// Reference: a graph in float64. It gives the graph's values, the branches that operators take, and how far rounding to
// float32 would move the results.
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
  // `noise`: every computed number is off by up to this part of itself; copied numbers are exact. `seed`: chooses the
  // noise.
  Values run(const Data &data, double noise = 0, std::uint64_t seed = 0) const;

  // The side on which each operand element of operators with kinks or jumps lies, and the least distance to a kink. An
  // element exactly on a kink has no distance and no side.
  struct Branches {
    std::vector<signed char> sides;
    double margin = 1;
  };
  Branches branches(const Values &values) const;

 private:
  graph::Graph graph_;
  std::vector<const ops::Op *> ops_;             // by node
  std::vector<std::vector<graph::Type>> types_;  // of each node's outputs
};

}  // namespace protrain::test
