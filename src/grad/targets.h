// The weight of a batch in a mean over several batches, such that this mean is that of one large batch. If the loss is
// a mean over labels (CrossEntropy), a batch's weight is the number of its labels that are not ignored, or the sum of
// their weights. Otherwise the weight is 1.
#pragma once

#include <optional>

#include "graph/graph.h"

namespace protrain::grad {

// The inputs and the attributes of the CountTargets node that computes a batch's weight.
struct TargetCount {
  std::vector<graph::ValueId> inputs;
  graph::Attributes attributes;
};
// Returns how to compute the weight of a batch with this loss, or nothing if the loss is no mean over labels.
std::optional<TargetCount> target_count(const graph::Graph &graph, graph::ValueId loss);

// The loss of a batch and its weight in a mean over batches. `loss` is 0 if all targets of the batch are ignored.
// `weight` is a float64 scalar, or none if every batch has weight 1.
struct WeighedLoss {
  graph::ValueId loss, weight;
};
// Adds a node for the batch's weight to a forward graph, for evaluations.
WeighedLoss weigh_loss(graph::Graph &forward, graph::ValueId loss);

}  // namespace protrain::grad
