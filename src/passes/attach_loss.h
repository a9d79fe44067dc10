// A loss for graphs that end in logits, or in any other prediction.
#pragma once

#include "passes/passes.h"

namespace protrain::passes {

// Makes the chosen output the graph's only one and puts the loss behind it, in file operators, as an exporter writes
// it; where the graph has no such input, the labels become its last. Tells what the loss is computed from ("" where
// there is no choice): "the logits before Softmax at /softmax". Nothing, and nothing attached, where the output is not
// typed: operators before it are unknown. The graph has been folded. Code::arg, type, shape.
std::optional<std::string> attach_loss(graph::Graph &graph, const Loss &loss);

}  // namespace protrain::passes
