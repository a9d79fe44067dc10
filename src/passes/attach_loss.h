// Attaches a loss to graphs that end in logits or another prediction.
#pragma once

#include "passes/passes.h"

namespace protrain::passes {

// Appends file operators that compute the loss from one of the graph's outputs, as an exporter would, and makes the
// loss the only output. If the graph has no input for labels, adds one as the last. The graph must have been folded.
// Returns what the loss is computed from, such as "the logits before Softmax at /softmax", or "" if there is no choice.
// Returns nothing, and attaches nothing, if the output has no type because operators before it are unknown. Throws
// Code::arg, Code::type, Code::shape.
std::optional<std::string> attach_loss(graph::Graph &graph, const Loss &loss);

}  // namespace protrain::passes
