// Pipeline: makes a draft from settings that bind the batch. Its steps are load, differentiate, measure, choose, lower,
// verify and predict.
#pragma once

#include "draft/draft.h"
#include "draft/target_machine.h"

namespace protrain::draft {

// Returns the draft. If no plan fits the budgets, the draft has the smallest plan and `decision.found.best` is empty.
Draft run_pipeline(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine,
                   Goal goal = Goal::best_or_budgets);

}  // namespace protrain::draft
