// The declarations of a model's parameters. A file that the option parameters_from names can replace their list.
#pragma once

#include <string>

#include "graph/declared.h"
#include "onnx_import/model.h"

namespace protrain::draft {

// Returns the model's declarations. If `parameters_from` names a file, the list in it replaces the declared list.
// Code::io, path, format, limit.
graph::FileDeclarations declarations_of(const std::string &parameters_from, const onnx_import::Model &model);

}  // namespace protrain::draft
