// Stored weights: frozen parameters that rest and move as they are stored, in 16 bits or as integers, and become floats
// only where they are used.
#pragma once

#include <functional>
#include <string>

#include "base/dtype.h"
#include "graph/graph.h"

namespace protrain::passes {

// Lets each frozen float32 parameter rest in the 16-bit type that `stored_as` returns for its name. A Cast stands
// between the parameter and what reads it. Any other type leaves a parameter as it is.
void store_frozen(graph::Graph &graph, const std::function<DType(const std::string &parameter)> &stored_as);

// Settles where stored weights become floats. A product's kernel takes the weights as they are stored, and widens them
// panel by panel. A node that only moves elements moves the stored ones. For all other readers the weights are widened
// right before, once for each block in each direction, so that no widened weights live from forward to backward. Takes
// the graph of a step, whose gradients are there already.
void widen_inside(graph::Graph &graph);

}  // namespace protrain::passes
