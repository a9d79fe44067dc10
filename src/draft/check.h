// The answer of `protrain check`: whether a model can be trained, and if not, everything that stands in the way.
#pragma once

#include <string>

#include "draft/options.h"

namespace protrain::draft {

// Reports operators, missing kernels and gradients with node names, parameters and constants with the reason, blocks,
// inputs, the batch and symbolic dims. Dims that options do not bind are inferred or assumed, and the answer says so.
std::string check_model(const Options &options, const std::string &model_path);

}  // namespace protrain::draft
