// The answers of `protrain plan` and `protrain profile`.
#pragma once

#include <string>

#include "draft/log.h"
#include "draft/options.h"

namespace protrain::draft {

// Returns the plan that the search would choose, the time and memory of a step, and the reasons. The machine is the one
// that the option `hardware` describes, or this one, whose kernels are then measured. Allocates only what measuring
// needs and reads no weights.
std::string plan_model(const Options &options, const std::string &model_path, const Log &progress);

// Measures this machine on the model's kernels, ignoring earlier measurements. The result is a description that the
// option `hardware` accepts elsewhere.
std::string profile_model(const Options &options, const std::string &model_path, const Log &progress);

}  // namespace protrain::draft
