// Functions that a model brings along: a flat graph is made of it before anything else looks at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "onnx_import/messages.h"
#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

// Functions that call each other can make 2^30 nodes of a kilobyte; a model that has functions stays below this.
inline constexpr std::uint64_t kMaxInlinedParts = 1 << 18;  // calls, nodes, their names, attributes and lists
inline constexpr std::uint64_t kMaxInlinedBytes = 16 << 20;
inline constexpr std::size_t kMaxCallDepth = 100;

// Puts the nodes of each called function in place of the call; no function is left. What they make is named CALL/NAME,
// made unique. Code::graph for calls in a circle and for all that a call and its function do not agree on, Code::limit
// beyond the above, Code::version and unsupported for operators that the function's opset does not have.
void inline_functions(ModelProto &model, Messages &messages, const std::string &path);

}  // namespace protrain::onnx_import
