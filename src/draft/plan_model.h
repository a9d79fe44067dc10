// The answers of `protrain plan` and `protrain profile`.
#pragma once

#include <string>

#include "draft/log.h"
#include "draft/options.h"

namespace protrain::draft {

// Returns the plan that the search would choose, the time and memory of a step, and the reasons. Plans for the machine
// that the option `hardware` describes. If this option is not set, plans for this machine, and measures its kernels.
// Allocates only what measuring needs and reads no weights.
std::string plan_model(const Options &options, const std::string &model_path, const Log &progress);

// Measures this machine on the model's kernels, ignoring earlier measurements. The result is a description that the
// option `hardware` accepts elsewhere.
std::string profile_model(const Options &options, const std::string &model_path, const Log &progress);

}  // namespace protrain::draft
