// Whether gradients of a whole graph equal finite differences, in float64.
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

// The same graph, of file operators, in float64.
void widen(Bound &bound);

// Of sums over the outputs of the graph that `make` gives, weighted at random. Each float input is differentiated at
// some of its elements. `reason`: what was refused or is wrong; where it is checked, inputs to which there is none.
Slope check_slopes(const std::function<Bound()> &make, std::string &reason);

}  // namespace protrain::test
