// The weight of a batch's loss in a mean over several batches. If the loss is a mean over labels (CrossEntropy), the
// weight is the number of the batch's labels that are not ignored, or the sum of these labels' weights. The mean over
// the batches then equals the loss of one large batch. For all other losses every batch has weight 1.
#pragma once

#include <optional>

#include "graph/graph.h"

namespace protrain::grad {

// The inputs and the attributes of the CountTargets node that computes a batch's weight.
struct TargetCount {
  std::vector<graph::ValueId> inputs;
  graph::Attributes attributes;
};
// Returns how to compute the weight of a batch with this loss. Returns an empty optional if the loss is no mean over
// labels.
std::optional<TargetCount> target_count(const graph::Graph &graph, graph::ValueId loss);

// The loss of a batch and its weight in a mean over batches. `loss` is 0 if all targets of the batch are ignored.
// `weight` is a float64 scalar, or none if every batch has weight 1.
struct WeighedLoss {
  graph::ValueId loss, weight;
};
// Adds a node for the batch's weight to a forward graph, for evaluations.
WeighedLoss weigh_loss(graph::Graph &forward, graph::ValueId loss);

}  // namespace protrain::grad
