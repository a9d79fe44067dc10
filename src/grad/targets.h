// Targets: how much a batch counts in a mean over several. If its loss is a mean over targets (CrossEntropy), it counts
// by the number of its targets that are not ignored, otherwise by 1. The mean over batches is then that of one large
// batch.
#pragma once

#include <optional>

#include "graph/graph.h"

namespace protrain::grad {

// The input and the attributes of the CountTargets that gives a batch's weight.
struct TargetCount {
  graph::ValueId labels;
  graph::Attributes attributes;
};
// Nothing if the loss is no mean over targets.
std::optional<TargetCount> target_count(const graph::Graph &graph, graph::ValueId loss);

// The loss of a batch, 0 if none of its targets counts, and its weight, a float64 scalar. `weight` is none if it is 1.
struct WeighedLoss {
  graph::ValueId loss, weight;
};
// Adds the weight to a forward graph, for evaluations by several ranks.
WeighedLoss weigh_loss(graph::Graph &forward, graph::ValueId loss);

}  // namespace protrain::grad
