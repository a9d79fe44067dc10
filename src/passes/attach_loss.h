// Attaches a loss to a graph that ends in logits or another prediction.
#pragma once

#include "passes/passes.h"

namespace protrain::passes {

// Appends file operators that compute the loss from one of the graph's outputs, as an exporter would, and makes the
// loss the only output beside the last `shown` ones. If the graph has no input for the labels, adds one after the
// others. The graph must have been folded. Returns what the prediction was taken for, such as "the logits before
// Softmax at /softmax"; "" for losses that do not distinguish logits from probabilities. Returns nullopt, and attaches
// no loss, if the output has no type because operators before it are unknown. Throws Code::arg, Code::type,
// Code::shape.
std::optional<std::string> attach_loss(graph::Graph &graph, const Loss &loss, std::size_t shown = 0);

// Leaves only the outputs `first` and the last `shown` ones, and the nodes that they need.
void keep_outputs(graph::Graph &graph, graph::ValueId first, std::size_t shown);

}  // namespace protrain::passes
