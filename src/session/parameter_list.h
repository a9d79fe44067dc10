// The list of parameters that the option parameters_from names, or the model's own.
#pragma once

#include "graph/declared.h"
#include "onnx_import/model.h"
#include "session/options.h"

namespace protrain::session {

// The file's declarations; the option's list replaces the file's. Code::io, path, format, limit.
graph::Declared declared_of(const Options &options, const onnx_import::Model &file);

}  // namespace protrain::session
