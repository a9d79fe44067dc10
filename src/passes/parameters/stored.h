// Stored weights: frozen parameters that rest and move as they are stored, in 16 bits or as integers, and become floats
// only where they are used.
#pragma once

#include <functional>
#include <string>

#include "base/dtype.h"
#include "graph/graph.h"

namespace protrain::passes {

// Lets each frozen float32 parameter rest in the 16-bit type that `stored_as` returns for its name. A Cast stands
// between the parameter and the nodes that read it. If `stored_as` does not return a 16-bit type, the parameter stays
// as it is.
void store_frozen(graph::Graph &graph, const std::function<DType(const std::string &parameter)> &stored_as);

// Moves, copies or removes the nodes that turn stored weights into floats. A product's kernel takes the weights as they
// are stored, and widens them panel by panel. A node that only moves elements moves 16-bit weights as they are stored.
// For all other readers, the weights are widened right before they are read. Readers in the same block and phase share
// one widened copy, so that no widened weights live from forward to backward. `graph` is the graph of a step and must
// have its gradients already.
void widen_inside(graph::Graph &graph);

}  // namespace protrain::passes
