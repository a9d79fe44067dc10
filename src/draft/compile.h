// Compile: turns settings and a model into a draft that a session can run.
#pragma once

#include "draft/draft.h"
#include "draft/target_machine.h"

namespace protrain::draft {

// Returns a draft that fits the budgets. Throws Code::budget if there is none. The error names the smallest budget that
// would work, and other changes that would help.
Draft compile(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine);

}  // namespace protrain::draft
