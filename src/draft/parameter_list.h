// The list of parameters from the option parameters_from, or the model's own.
#pragma once

#include <string>

#include "graph/declared.h"
#include "onnx_import/model.h"

namespace protrain::draft {

// Returns the model's declarations. Unless `parameters_from` is "", the list in that file replaces the declared list.
// Code::io, path, format, limit.
graph::FileDeclarations declarations_of(const std::string &parameters_from, const onnx_import::Model &model);

}  // namespace protrain::draft
