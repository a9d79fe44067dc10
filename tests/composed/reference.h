// A graph in float64: its values, which branches its operators take there, and how far rounding to float32 would move
// its results.
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
  // `noise`: every number that is computed, and not just copied, is off by up to this part of itself; `seed` says how.
  Values run(const Data &data, double noise = 0, std::uint64_t seed = 0) const;

  // The sides on which the operands of operators with kinks or jumps lie, element by element, and how far from the next
  // one they are at the least. An operand exactly on a kink is at no distance from it, and on neither side.
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
