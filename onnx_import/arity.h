// The numbers of inputs and outputs that operators take.
#pragma once

#include <cstdint>
#include <string>

#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

// Throws Code::graph if the node has fewer or more inputs or outputs than its operator has in the file's opset.
// Operators of other domains do not depend on the opset. Unknown operators pass.
void check_arity(const NodeProto &node, std::int64_t opset, const std::string &subject);

}  // namespace protrain::onnx_import
