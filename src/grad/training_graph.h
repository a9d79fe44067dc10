// The values of a training graph, and the settings that shape it.
#pragma once

#include <vector>

#include "graph/shards.h"

namespace protrain::grad {

struct Training {
  // The values of the forward graph keep their ids here. The graph's outputs are the loss, the gradients, the norm and,
  // where present, shard_norms, changed, weight and scale.
  graph::Graph graph;
  graph::ValueId loss;   // float scalar
  graph::ValueId norm;   // float64 scalar: global L2 norm of the gradients before clipping
  graph::Shards shards;  // of graph.parameters
  // The gradient of each parameter, in the order of graph.parameters. ValueId::none if the parameter is frozen or the
  // loss does not depend on it. With accumulation, gradients are weighted sums over the micro-batches so far. With
  // several ranks, they cover only this rank's shards.
  std::vector<graph::ValueId> gradients;
  std::vector<graph::ValueId> squared_norms;  // of whole gradients, on any number of ranks; float64 scalars
  // The squared norms of this rank's shards of the gradients. Empty with a single rank, and with accumulation.
  std::vector<graph::ValueId> shard_norms;
  // The new value of each parameter that is state, in the order of graph.parameters; ValueId::none for all others. With
  // accumulation it is the value after the micro-batches so far. All ranks have the same values.
  std::vector<graph::ValueId> changed;
  // The values that hold the sums of gradients between micro-batches. Empty without accumulation. Also empty if
  // sums_by_rank() is true: in that case each rank keeps sums of whole parameters in values that are not listed here,
  // and the last micro-batch makes `gradients` of these sums.
  std::vector<graph::ValueId> accumulators;
  // The weight of this micro-batch in the step, a float64 scalar. ValueId::none with a single rank and no accumulation.
  // With several ranks, `loss` and `weight` are vectors with one element for each rank's micro-batch.
  graph::ValueId weight = graph::ValueId::none;
  graph::ValueId loss_scale = graph::ValueId::none;  // factor of the loss, float64 scalar; none: 1
  graph::ValueId scale = graph::ValueId::none;       // factor of gradients in Updates, float32 scalar; none: 1
};

struct TrainingSettings {
  double clip_norm = 0;     // largest global norm; 0: no limit
  bool accumulate = false;  // sum gradients over micro-batches that come one after the other
  bool scale_loss = false;  // multiply the loss by the step's LossScale; Updates divide gradients by it
  int rank = 0, ranks = 1;  // several ranks: each computes a micro-batch at a time
  // If true, each rank adds the gradients of its own micro-batches, and the ranks exchange these sums in the last
  // micro-batch. Has no effect with a single rank, or without accumulation.
  bool local_sums = false;

  bool sums_by_rank() const { return local_sums && accumulate && ranks > 1; }
};

}  // namespace protrain::grad
