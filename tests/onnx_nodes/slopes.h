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

// Changes a graph of file operators from float32 to float64.
void widen(Bound &bound);

// Checks the gradient of a randomly weighted sum of the outputs, at some elements of each float input. `make` builds
// the graph. Sets `reason` to what was refused or is wrong or, if the gradient is right, to the inputs without one.
Slope check_slopes(const std::function<Bound()> &make, std::string &reason);

}  // namespace protrain::test
