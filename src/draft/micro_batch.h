// The size of a micro-batch, where `tokens_per_step` says what a step is to hold and the batch is left open. It is part
// of the shapes, and so of the bits: it is settled before a plan is searched for, by memory alone, never by times.
#pragma once

#include <optional>

#include "draft/settings.h"
#include "draft/target_machine.h"

namespace protrain::draft {

struct MicroBatch {
  std::string dim;  // the symbolic dimension that it binds
  std::int64_t samples = 0;
};

// None where the batch is bound, or nothing asks for one. A session that resumes has that of the checkpoint. Else the
// largest that divides the step and keeps everything in memory; where none does, the largest with which any plan fits;
// where nothing fits at all, 1. Code::arg where the tokens of a sample do not divide those of a step, Code::mismatch
// where the checkpoint's does not.
std::optional<MicroBatch> settle_micro_batch(const Settings &settings, const onnx_import::Source &source,
                                             TargetMachine &machine);

}  // namespace protrain::draft
