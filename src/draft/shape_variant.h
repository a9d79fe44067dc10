// ShapeVariant: one binding of the model's symbolic dimensions, and the graphs of a session under it.
#pragma once

#include "draft/batch.h"
#include "grad/training.h"

namespace protrain::draft {

struct ShapeVariant {
  graph::Graph forward;  // without randomness, for evaluation
  // The results of an evaluation: this rank's loss, and the weight of this loss in the mean over several ranks. The
  // weight is 0 if no target counts. If the weight is always 1, no value holds it, and `weight` is ValueId::none.
  graph::ValueId loss = graph::ValueId::none, weight = graph::ValueId::none;
  graph::Graph outputs;  // computes the outputs that keep_outputs names; without nodes if there are none
  grad::Training training;
  Batch batch;
  // The samples that a micro-batch has for random numbers. The random numbers of the next micro-batch begin after these
  // samples. The number is larger than batch.samples if the first axis of the first input is longer than that of the
  // input by which the batch is counted.
  std::uint64_t numbered_samples = 1;
};

}  // namespace protrain::draft
