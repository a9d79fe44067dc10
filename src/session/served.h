// Served: one binding of the model's symbolic dimensions, and the graphs of what a session does under it.
#pragma once

#include "grad/training.h"

namespace protrain::session {

struct Served {
  graph::Graph forward;  // without randomness: evaluation
  graph::ValueId loss = graph::ValueId::none;
  grad::Training training;
};

}  // namespace protrain::session
