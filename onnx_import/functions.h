// Functions that a model defines. Their calls are replaced by nodes before any other code sees the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "onnx_import/messages.h"
#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

// Functions that call each other can define 2^30 nodes in a file of a kilobyte. So models with functions have limits.
inline constexpr std::uint64_t kMaxInlinedParts = 1 << 18;  // calls, nodes, their names, attributes and lists
inline constexpr std::uint64_t kMaxInlinedBytes = 16 << 20;
inline constexpr std::size_t kMaxCallDepth = 100;

// Replaces each call by the nodes of the called function, and removes all functions from the model. A new value or node
// is named CALL/NAME, or a similar name if this one is taken. Throws Code::graph for recursive calls and for any
// mismatch between a call and its function, Code::limit if the model exceeds one of the limits above, and Code::version
// or Code::unsupported for operators that the function's opset does not have.
void inline_functions(ModelProto &model, Messages &messages, const std::string &path);

}  // namespace protrain::onnx_import
