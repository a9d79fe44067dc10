// Attaches a loss to graphs that end in logits or another prediction.
#pragma once

#include "passes/passes.h"

namespace protrain::passes {

// Makes the chosen output the graph's only one and puts the loss behind it, in file operators, as an exporter would. If
// the graph has no input for labels, they become its last input. The graph must have been folded. Returns what the loss
// is computed from, such as "the logits before Softmax at /softmax", or "" if there is no choice. Returns nothing, and
// attaches nothing, if the output has no type because operators before it are unknown. Code::arg, type, shape.
std::optional<std::string> attach_loss(graph::Graph &graph, const Loss &loss);

}  // namespace protrain::passes
