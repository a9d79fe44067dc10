// Checks the gradients of a whole graph against finite differences, in float64.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "graph/graph.h"

namespace protrain::test {

enum class Slope;

// A graph and the values of its inputs.
struct Bound {
  graph::Graph graph;
  std::map<graph::ValueId, graph::Array> values;
};

// Brings the graph, of file operators, to float64.
void widen(Bound &bound);

// Checks randomly weighted sums over the outputs of the graph from `make`. Each float input is differentiated at some
// of its elements. `reason` says what was refused or is wrong; if it is checked, which inputs have no gradient.
Slope check_slopes(const std::function<Bound()> &make, std::string &reason);

}  // namespace protrain::test
