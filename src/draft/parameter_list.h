// The list of parameters that the option parameters_from names, or the model's own.
#pragma once

#include <string>

#include "graph/declared.h"
#include "onnx_import/model.h"

namespace protrain::draft {

// The model's declarations; the list of the file `parameters_from` replaces them, unless that is "". Code::io, path,
// format, limit.
graph::Declared declared_of(const std::string &parameters_from, const onnx_import::Model &model);

}  // namespace protrain::draft
