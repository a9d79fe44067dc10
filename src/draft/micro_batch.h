// Chooses the size of a micro-batch if `tokens_per_step` gives a step's size and the batch is left open. The size is
// part of the shapes, so it is chosen before the search for a plan. It also changes the bits of results, so it must not
// depend on measured times, which differ from run to run. Only memory decides.
#pragma once

#include <optional>

#include "draft/settings.h"
#include "draft/target_machine.h"

namespace protrain::draft {

struct MicroBatch {
  std::string dim;  // the symbolic dimension that counts samples
  std::int64_t samples = 0;
};

// Returns the size of a micro-batch. Returns an empty optional if tokens_per_step is not given, if the batch dimension
// is bound, or if the number of tokens in a sample is not known. If the session resumes from a checkpoint whose session
// chose a size, this size is kept.
//   Otherwise tries all sizes that divide a rank's samples of a step, the largest first. Takes the first size with
// which the resident plan fits: the plan in which nothing moves and nothing is recomputed. If there is no such size,
// takes the largest size with which any plan fits. If no plan fits with any size, takes 1.
//   Code::arg if the step cannot be divided into whole samples for each rank, or if a size must be chosen although the
// option plan is set. Code::mismatch if the size in the checkpoint does not divide a rank's samples of a step.
std::optional<MicroBatch> settle_micro_batch(const Settings &settings, const onnx_import::ModelSource &source,
                                             TargetMachine &machine);

}  // namespace protrain::draft
