// Shares weights again that a framework shares and that an exporter wrote several times.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// For each entry of `ties`, makes the parameters that it matches one parameter: the first one in the order of findings.
// They must have equal types, or be a matrix and its transpose, else Code::shape. Code::arg if fewer than two match.
void tie(graph::Graph &graph, const std::vector<std::string> &ties, std::vector<Finding> &findings);

// If a matrix equals the transpose of an embedding table bit for bit, ties it to the table. Leaves a matrix alone whose
// values are constant along an axis.
void retie_transposes(graph::Graph &graph, const LoadInitializer &load, std::vector<Finding> &findings);

// Lists the graph's parameters in the order of first use.
void order_parameters(graph::Graph &graph);

}  // namespace protrain::passes
