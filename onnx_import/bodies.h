// Weights inside the bodies of control flow nodes.
#pragma once

#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

// Moves initializers with more than one float from bodies to the main graph, because only the main graph has weights. A
// body's own inputs and outputs stay in the body. A moved initializer gets a suffix if several graphs define its name.
void move_weights_out(ModelProto &model);

}  // namespace protrain::onnx_import
