// The answer of `protrain check`: whether a model can be trained, and if not, everything that stands in the way.
#pragma once

#include <string>

#include "draft/options.h"

namespace protrain::draft {

// Reports the model's operators, blocks, inputs, batch and symbolic dims. Reports the role of each initializer
// (parameter, state or constant) and the reason for it. Reports missing kernels and gradients with the names of their
// nodes. Dims that options do not bind are inferred or assumed, and the answer says so.
std::string check_model(const Options &options, const std::string &model_path);

}  // namespace protrain::draft
