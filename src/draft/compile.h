// Compile: the whole way from settings and a model to a draft that a session can run.
#pragma once

#include "draft/draft.h"
#include "draft/target_machine.h"

namespace protrain::draft {

// A draft that fits. Code::budget if none does, with the smallest budget that would work and other changes.
Draft compile(const Settings &settings, const onnx_import::ModelSource &source, TargetMachine &machine);

}  // namespace protrain::draft
