// The training graph: the forward graph followed by the gradients of its loss, built from each operator's rule.
#pragma once

#include <vector>

#include "graph/shards.h"

namespace protrain::grad {

struct Training {
  // Forward values keep their ids. Outputs: loss, gradients, norm and, where present, weight and scale.
  graph::Graph graph;
  graph::ValueId loss;   // float scalar
  graph::ValueId norm;   // float64 scalar: global L2 norm of the gradients before clipping
  graph::Shards shards;  // of graph.parameters
  // Parallel to graph.parameters; ValueId::none if the parameter is frozen or the loss does not depend on it.
  // `gradients` with accumulation: weighted sums over the micro-batches so far. With several ranks: of this rank's
  // shard.
  std::vector<graph::ValueId> gradients;
  std::vector<graph::ValueId> squared_norms;  // of `gradients`, of all ranks' shards; float64 scalars
  std::vector<graph::ValueId> shard_norms;    // several ranks, one round: squared norms of this rank's shards
  std::vector<graph::ValueId> accumulators;   // hold the sums between micro-batches; empty without accumulation
  // With accumulation: the weight of this micro-batch, a float64 scalar. With several ranks `loss` and `weight` are
  // vectors, with an element for each rank's micro-batch.
  graph::ValueId weight = graph::ValueId::none;
  graph::ValueId loss_scale = graph::ValueId::none;  // factor the loss is multiplied by, float64 scalar; none: 1
  graph::ValueId scale = graph::ValueId::none;       // factor Updates apply to gradients, float32 scalar; none: 1
};

struct TrainingSettings {
  double clip_norm = 0;     // largest global norm; 0: no limit
  bool accumulate = false;  // sum gradients over micro-batches that come one after the other
  bool scale_loss = false;  // multiply the loss by the step's LossScale; Updates divide gradients by it
  int rank = 0, ranks = 1;  // several ranks: each computes a micro-batch at a time
};

// `forward` is typed and uses core operators; `loss` is one of its values. Code::graph if the loss is not a float
// scalar or depends on no trained parameter. Code::unsupported lists every operator on the way to the loss that has no
// gradient. If the loss is a mean over targets (CrossEntropy), the weight of a micro-batch is the number of its targets
// that are not ignored. Otherwise it is 1.
//   With several ranks the graph is that of one rank. The gradients of every rank's micro-batch are exchanged, so that
// each rank adds those of its shards in the order of micro-batches, as one rank would.
Training build(graph::Graph forward, graph::ValueId loss, const TrainingSettings &settings = {});

// Replaces unread outputs of nodes by ValueId::none, so that kernels do not compute them.
void prune_unread_outputs(graph::Graph &graph);

}  // namespace protrain::grad
