// The outputs that the option keep_outputs names.
#pragma once

#include <string>
#include <vector>

#include "onnx_import/model.h"
#include "passes/passes.h"

namespace protrain::draft {

// Returns the outputs of a file's graph that the patterns match, in the file's order. Code::arg if a pattern matches
// none.
std::vector<graph::ValueId> shown_outputs(const graph::Graph &graph, const std::vector<std::string> &patterns);

// Turns a graph that computes the loss and then `shown` further outputs into one that evaluates only these. It has the
// parameters and inputs of `trained`, in the same order, and those of its blocks if there are as many.
// Code::unsupported if the two graphs do not fit together, or an output is computed by no node.
void show_outputs(passes::PreparedModel &prepared, std::size_t shown, const passes::PreparedModel &trained);

}  // namespace protrain::draft
