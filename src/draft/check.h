// The answer of `protrain check`: whether a model trains, and if not, everything that it lacks.
#pragma once

#include <string>

#include "draft/options.h"

namespace protrain::draft {

// Operators, missing kernels and gradients with node names, parameters and constants with the reason, blocks, inputs,
// the batch and symbolic dims (those not bound by options get a small default, which is said).
std::string check_model(const Options &options, const std::string &model_path);

}  // namespace protrain::draft
