// The domain com.microsoft.nchwc: ONNX Runtime's convolutions on blocks of channels.
#pragma once

#include <cstdint>

#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

inline constexpr const char *kBlockedDomain = "com.microsoft.nchwc";

// Returns the number of channels in a block of the nodes of kBlockedDomain. A file does not say this number. ONNX
// Runtime writes such a file for one kind of processor, and reads it with the blocks of the processor that it runs on.
// This function does the same, but returns 8 if the channels of some weight are no multiple of 16.
std::int64_t channels_of_a_block(const GraphProto &graph);

}  // namespace protrain::onnx_import
