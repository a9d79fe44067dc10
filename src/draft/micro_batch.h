// The size of a micro-batch when `tokens_per_step` gives a step's size and the batch is left open. The size is part of
// the shapes, so the bits of results depend on it. Therefore it is settled before the search for a plan. Measured times
// differ from run to run, so only memory decides.
#pragma once

#include <optional>

#include "draft/settings.h"
#include "draft/target_machine.h"

namespace protrain::draft {

struct MicroBatch {
  std::string dim;  // the symbolic dimension that it binds
  std::int64_t samples = 0;
};

// Returns nothing if the batch is bound or no step size is given. A resumed session keeps the checkpoint's size.
// Otherwise the size is the largest that divides the step and whose resident plan fits; failing that, the largest with
// which any plan fits; failing that, 1. Code::arg if the tokens of a sample do not divide those of a step,
// Code::mismatch if the checkpoint's size does not divide the step.
std::optional<MicroBatch> settle_micro_batch(const Settings &settings, const onnx_import::ModelSource &source,
                                             TargetMachine &machine);

}  // namespace protrain::draft
