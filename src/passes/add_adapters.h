// Adds low-rank adapters to products and lookups.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Adapts every parameter that a request of choices.adapters matches. If several requests match, the first one counts. A
// pattern is compared with the parameter's name in the graph, with its name in the file, and with MODULE.weight, where
// MODULE is the framework's module that the parameter belongs to. Takes a graph of core operators whose parameters are
// known. Returns the adapters in the order of parameters, and adds a finding for each of their matrices.
//   Throws Code::unsupported if a node reads an adapted parameter other than in a product or a lookup, because all
// readers must compute with the parameter plus the adapter's change. Throws Code::arg if a pattern matches no
// parameter. Throws Code::mismatch if a request for one module matches no parameter, several parameters, or a parameter
// that an earlier request matches.
//   With choices.settled, adapts the parameters that are adapted in the graph that is trained. Their matrices have the
// names and shapes that they have there, whatever reads the parameters here.
std::vector<Adapter> add_adapters(graph::Graph &graph, const Choices &choices, const std::vector<graph::Split> &splits,
                                  std::vector<Finding> &findings);

}  // namespace protrain::passes
