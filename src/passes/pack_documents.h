// Lets one window of tokens hold several documents.
#pragma once

#include <string>

#include "passes/passes.h"

namespace protrain::passes {

// Makes the results for each document in a window what they would be if the document were alone. The int64 input
// `positions` (B, S), which is added if the graph has none, counts from 0 in each document. Attention sees no earlier
// document, and what depends on the place in the window, such as position embeddings, is looked up by position. Refuses
// with Code::unsupported, by name, a node that would let one token of a window change another in any other way. The
// graph must have been fused.
void pack_documents(graph::Graph &graph, const std::string &positions);

}  // namespace protrain::passes
