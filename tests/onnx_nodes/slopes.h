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

// Checks gradients of the graph that `make` builds, at some elements of each float input. The loss is a randomly
// weighted sum of the outputs. Sets `reason` to the first difference if the result is Slope::wrong, to the text of the
// error if it is Slope::refused, and to the inputs without a gradient if it is Slope::checked.
Slope check_slopes(const std::function<Bound()> &make, std::string &reason);

}  // namespace protrain::test
