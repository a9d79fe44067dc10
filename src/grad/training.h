// The training graph: the forward graph followed by the gradients of its loss, made by asking each operator's rule.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace protrain::grad {

struct Training {
  graph::Graph graph;   // forward values keep their ids; outputs: loss, gradients, norm
  graph::ValueId loss;  // float scalar
  graph::ValueId norm;  // float64 scalar: global L2 norm of the gradients
  // Parallel to graph.parameters; ValueId::none where frozen or where the loss does not depend on the parameter.
  std::vector<graph::ValueId> gradients;
  std::vector<graph::ValueId> squared_norms;  // likewise; float64 scalars
  std::vector<graph::ValueId> accumulators = {};
  graph::ValueId weight = graph::ValueId::none, scale = graph::ValueId::none;
};
struct Settings {
  double clip_norm = 0;
  bool accumulate = false;
};

// `forward` is typed and in core operators; `loss` one of its values. Code::graph where the loss is not a float scalar
// or no trained parameter is behind it; Code::unsupported lists every operator on the way that has no gradient.
Training build(graph::Graph forward, graph::ValueId loss, const Settings &settings = {});

// Outputs of several-output nodes that nobody reads become ValueId::none: kernels then do not compute them.
void prune_unread_outputs(graph::Graph &graph);

}  // namespace protrain::grad
