// The answers of `protrain plan` and `protrain profile`.
#pragma once

#include <string>

#include "draft/log.h"
#include "draft/options.h"

namespace protrain::draft {

// The plan that the search would choose, what a step would take and hold, and why; for the machine that the option
// `hardware` describes, or for this one, whose kernels are then measured. Nothing is allocated but what that needs, no
// weights are read.
std::string plan_model(const Options &options, const std::string &model_path, const Log &progress);

// Measures this machine on the model's kernels, whatever an earlier session has measured: a description of the machine
// that the option `hardware` takes elsewhere.
std::string profile_model(const Options &options, const std::string &model_path, const Log &progress);

}  // namespace protrain::draft
