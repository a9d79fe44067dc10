// The training graph: the forward graph, followed by nodes that compute the gradients of its loss. Operators' rules
// emit these nodes.
#pragma once

#include "grad/targets.h"
#include "grad/training_graph.h"

namespace protrain::grad {

// Builds the training graph of `forward`, which is typed and uses core operators. `loss` is a value of `forward`.
// Throws Code::graph if the loss is not a float scalar or depends on no trained parameter. Throws Code::unsupported if
// operators between a trained parameter and the loss have no gradient; the error lists all of them.
//   If a step has several micro-batches or ranks, the gradients of micro-batches are summed with weights. For a loss
// that is a mean over targets (CrossEntropy), the weight of a micro-batch is the number of its targets that are not
// ignored, or the sum of these targets' weights if targets have weights. For any other loss every micro-batch has
// weight 1.
//
// With several ranks, the graph is that of one rank. The ranks exchange the gradients of their micro-batches. Each rank
// sums the gradients of its own shards in the order of micro-batches, as a single rank would. With local_sums each rank
// first adds the gradients of its own micro-batches, so bits depend on the number of ranks.
Training build(graph::Graph forward, graph::ValueId loss, const TrainingSettings &settings = {});

// Returns the graph of a session that only evaluates: `forward` as it is, whose outputs are the loss and its weight.
// With several ranks it is the graph of one rank. Throws Code::graph if the loss is not a float scalar or is computed
// by no node.
Training without_gradients(graph::Graph forward, const WeighedLoss &loss, int rank, int ranks);

// Replaces unread outputs of nodes by ValueId::none, so that kernels do not compute them.
void prune_unread_outputs(graph::Graph &graph);

}  // namespace protrain::grad
