// Packing: lets one sample, which is a window of S tokens, hold several documents.
#pragma once

#include <string>

#include "passes/passes.h"

namespace protrain::passes {

// Changes the graph so that each document in a window gets the results that it would have alone. Adds the int64 input
// `positions` (B, S) if the graph has none. This input counts the tokens of each document from 0. Attention no longer
// sees earlier documents. Values that depend on a token's place in the window, such as position embeddings, are looked
// up by `positions` instead. Throws Code::unsupported, with the node's name, if a node could still let one document
// change the results of another. The graph must have been fused.
void pack_documents(graph::Graph &graph, const std::string &positions);

}  // namespace protrain::passes
