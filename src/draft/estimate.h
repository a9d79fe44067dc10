// Estimate: makes a draft to be looked at. Unlike the result of compile(), it need not fit the budgets.
#pragma once

#include "draft/draft.h"
#include "draft/target_machine.h"

namespace protrain::draft {

// Settles the batch if the settings leave it open, then runs the pipeline. If no plan fits the budgets, the draft has
// the smallest plan and `decision.found.best` is empty.
Draft estimate(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine,
               Goal goal = Goal::best_or_budgets);

}  // namespace protrain::draft
