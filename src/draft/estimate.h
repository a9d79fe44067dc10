// Estimate: a draft for a look alone.
#pragma once

#include "draft/draft.h"
#include "draft/target_machine.h"

namespace protrain::draft {

// Settles the batch where the settings leave it open, then runs the pipeline. Where nothing fits the budgets the draft
// is that of the smallest plan, and `decision.found.best` is empty.
Draft estimate(const Settings &settings, const onnx_import::Source &source, TargetMachine &machine);

}  // namespace protrain::draft
