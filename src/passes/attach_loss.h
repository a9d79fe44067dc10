// Attaches losses to a graph that ends in logits or other predictions.
#pragma once

#include "passes/passes.h"

namespace protrain::passes {

// Appends file operators that compute losses from the graph's outputs, as an exporter would. The weighted sum of the
// losses replaces all outputs except the last `shown` ones. If the graph has no input for labels, adds this input
// behind its other inputs. The graph must have been folded.
//   Returns in words whether a loss reads logits or probabilities, such as "the logits before Softmax at /softmax"; ""
// for losses that do not distinguish the two. For several losses, puts each output's name before its words: "start:
// logits; end: logits". Returns nullopt, and attaches no loss, if an output has no type because operators before it are
// unknown. Throws Code::arg, Code::type, Code::shape.
std::optional<std::string> attach_losses(graph::Graph &graph, const std::vector<Loss> &losses, std::size_t shown = 0);

// Leaves only the outputs `first` and the last `shown` ones, and the nodes that they need.
void keep_outputs(graph::Graph &graph, const std::vector<graph::ValueId> &first, std::size_t shown);

}  // namespace protrain::passes
