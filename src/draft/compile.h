// Compile: all of the way from settings and a model to a draft that a session lives.
#pragma once

#include "draft/draft.h"
#include "draft/target_machine.h"

namespace protrain::draft {

// Code::budget where nothing fits: with the smallest budget that does, and other changes that would.
Draft compile(const Settings &settings, const onnx_import::Source &source, TargetMachine &machine);

}  // namespace protrain::draft
