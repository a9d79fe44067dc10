// Weights inside the bodies of control flow nodes.
#pragma once

#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

// Moves initializers of several floats from bodies to the main graph, so that all weights lie there. A name that is
// defined in several places gets a suffix.
void move_weights_out(ModelProto &model);

}  // namespace protrain::onnx_import
