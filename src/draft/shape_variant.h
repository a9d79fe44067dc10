// ShapeVariant: one binding of the model's symbolic dimensions, and the graphs of a session under it.
#pragma once

#include "draft/batch.h"
#include "grad/training.h"

namespace protrain::draft {

struct ShapeVariant {
  graph::Graph forward;  // without randomness, for evaluation
  graph::ValueId loss = graph::ValueId::none;
  grad::Training training;
  Batch batch;
};

}  // namespace protrain::draft
