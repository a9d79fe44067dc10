// The training graph: the forward graph, followed by nodes that compute the gradients of its loss. Operators' rules
// emit these nodes.
#pragma once

#include "grad/training_graph.h"

namespace protrain::grad {

// Builds the training graph of `forward`, which is typed and uses core operators. `loss` is one of its values.
// Code::graph if the loss is not a float scalar or depends on no trained parameter. Code::unsupported lists every
// operator on the way to the loss that has no gradient. If a step has several micro-batches or ranks, gradients are
// summed with weights. If the loss is a mean over targets (CrossEntropy), the weight of a micro-batch is the number of
// its targets that are not ignored, or the sum of their weights. Otherwise it is 1.
//
// With several ranks, the graph is that of one rank. The ranks exchange the gradients of their micro-batches. Each rank
// sums those of its shards in the order of micro-batches, as a single rank would. With local_sums each rank first adds
// the gradients of its own micro-batches, so bits depend on the number of ranks.
Training build(graph::Graph forward, graph::ValueId loss, const TrainingSettings &settings = {});

// Replaces unread outputs of nodes by ValueId::none, so that kernels do not compute them.
void prune_unread_outputs(graph::Graph &graph);

}  // namespace protrain::grad
