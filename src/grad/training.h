// The training graph: the forward graph followed by the gradients of its loss, made by asking each operator's rule.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace protrain::grad {

struct Training {
  graph::Graph graph;   // forward values keep their ids; outputs: loss, gradients, norm, and weight, scale where there
  graph::ValueId loss;  // float scalar
  graph::ValueId norm;  // float64 scalar: global L2 norm of the gradients, before they are clipped
  // Parallel to graph.parameters; ValueId::none where frozen or where the loss does not depend on the parameter.
  std::vector<graph::ValueId> gradients;             // with accumulation: weighted sums over the micro-batches so far
  std::vector<graph::ValueId> squared_norms;         // likewise; float64 scalars
  std::vector<graph::ValueId> accumulators;          // where those sums are held; empty without accumulation
  graph::ValueId weight = graph::ValueId::none;      // accumulation: what this micro-batch counts for, float64 scalar
  graph::ValueId loss_scale = graph::ValueId::none;  // what gradients are too large by, float64 scalar; none: 1
  graph::ValueId scale = graph::ValueId::none;       // what Updates multiply gradients by, float32 scalar; none: 1
};

struct Settings {
  double clip_norm = 0;     // largest global norm; 0: any
  bool accumulate = false;  // gradients are summed over micro-batches
  bool scale_loss = false;  // the loss is multiplied by the step's LossScale, and what Updates take divided by it
};

// `forward` is typed and in core operators; `loss` one of its values. Code::graph where the loss is not a float scalar
// or no trained parameter is behind it; Code::unsupported lists every operator on the way that has no gradient.
// A micro-batch counts for its targets that are not ignored where the loss is a mean over them (CrossEntropy), else
// for 1.
Training build(graph::Graph forward, graph::ValueId loss, const Settings &settings = {});

// Outputs of several-output nodes that nobody reads become ValueId::none: kernels then do not compute them.
void prune_unread_outputs(graph::Graph &graph);

}  // namespace protrain::grad
