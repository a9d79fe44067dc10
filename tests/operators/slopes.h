// Checks gradients of a whole graph against finite differences, in float64.
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

// Makes the graph, of file operators, float64.
void widen(Bound &bound);

// Checks the slopes of randomly weighted sums over the outputs of the graph that `make` gives. Some elements of each
// float input are differentiated. `reason`: the refusal or the mistake; for a checked graph, the inputs without a
// gradient.
Slope check_slopes(const std::function<Bound()> &make, std::string &reason);

}  // namespace protrain::test
