// The numbers of inputs and outputs that operators take.
#pragma once

#include <string>

#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

// Code::graph if the node has fewer or more inputs or outputs than its operator has in any opset that we read. Unknown
// operators pass.
void check_arity(const NodeProto &node, const std::string &subject);

}  // namespace protrain::onnx_import
