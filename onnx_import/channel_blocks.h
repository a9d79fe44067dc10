// The domain com.microsoft.nchwc: ONNX Runtime's convolutions on blocks of channels.
#pragma once

#include <cstdint>

#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

inline constexpr const char *kBlockedDomain = "com.microsoft.nchwc";

// Returns the number of channels in a block of the nodes of kBlockedDomain. A file does not say this number: ONNX
// Runtime takes the number that suits the processor on which it runs. This function does the same. But it returns 8 if
// the channels of some weight are no multiple of 16, because then the file was written for blocks of 8.
std::int64_t channels_of_a_block(const GraphProto &graph);

}  // namespace protrain::onnx_import
