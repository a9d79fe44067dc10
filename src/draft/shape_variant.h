// ShapeVariant: one binding of the model's symbolic dimensions, and the graphs of a session under it.
#pragma once

#include "draft/batch.h"
#include "grad/training.h"

namespace protrain::draft {

struct ShapeVariant {
  graph::Graph forward;  // without randomness, for evaluation
  // The results of an evaluation. `weight` is the weight of this rank's loss in the mean over several ranks. The weight
  // is 0 if no target counts. There is no such value (none) if the weight is always 1.
  graph::ValueId loss = graph::ValueId::none, weight = graph::ValueId::none;
  graph::Graph outputs;  // computes the outputs that keep_outputs names; without nodes if there are none
  grad::Training training;
  Batch batch;
};

}  // namespace protrain::draft
