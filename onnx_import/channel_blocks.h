// The domain com.microsoft.nchwc: ONNX Runtime's convolutions on blocks of channels.
#pragma once

#include <cstdint>

#include "onnx_import/model.pb.h"

namespace protrain::onnx_import {

inline constexpr const char *kBlockedDomain = "com.microsoft.nchwc";

// Returns how many channels are a block in the nodes of kBlockedDomain. A file does not say it. ONNX Runtime writes
// such a file for one kind of processor, and reads it with the blocks of the processor that it runs on. So does this
// function, unless the channels of a weight are no multiple of these: then blocks have 8 channels.
std::int64_t channels_of_a_block(const GraphProto &graph);

}  // namespace protrain::onnx_import
