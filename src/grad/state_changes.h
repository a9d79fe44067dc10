// Emits the nodes that compute the new values of state. State is what forward changes, such as running statistics.
#pragma once

#include "grad/emitter.h"
#include "grad/training_graph.h"

namespace protrain::grad {

// Emits nodes that fold the statistics of each micro-batch into the state, in the order of micro-batches, and sets
// `training.changed`. The ranks exchange the statistics of their micro-batches, so the bits of the state are the same
// on all ranks and do not depend on the number of ranks. The nodes belong to no block, so they never run twice.
void change_state(Training &training, Emitter &emitter, const TrainingSettings &settings);

}  // namespace protrain::grad
