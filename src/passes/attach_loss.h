// Attaches losses to a graph that ends in logits or other predictions.
#pragma once

#include "passes/passes.h"

namespace protrain::passes {

// Appends file operators that compute losses from the graph's outputs, as an exporter would. The weighted sum of the
// losses replaces all outputs except the last `shown` ones. If the graph has no input for labels, adds this input
// behind its other inputs. The graph must have been folded.
//   The returned text says whether a loss reads logits or probabilities, such as "the logits before Softmax at
// /softmax". The text is "" for losses that do not distinguish the two. If there are several losses, the text names the
// output of each: "start: logits; end: logits". If an output has no type because operators before it are unknown,
// attaches no loss and returns an empty optional. Throws Code::arg, Code::type, Code::shape.
std::optional<std::string> attach_losses(graph::Graph &graph, const std::vector<Loss> &losses, std::size_t shown = 0);

// Makes the values `first` and the last `shown` outputs the only outputs of the graph. Removes the nodes that these
// outputs do not need.
void keep_outputs(graph::Graph &graph, const std::vector<graph::ValueId> &first, std::size_t shown);

}  // namespace protrain::passes
