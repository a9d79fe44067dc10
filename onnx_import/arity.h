// How many inputs and outputs operators take.
#pragma once

#include <string>

#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

// A node of the default domain: Code::graph where it has fewer or more than its operator has in any opset that is read.
// Operators that are not known pass.
void check_arity(const NodeProto &node, const std::string &subject);

}  // namespace protrain::onnx_import
