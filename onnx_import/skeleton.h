// Skeleton: an ONNX file without the bytes of its weights, small enough to parse.
//
// The walker knows the wire format and ONNX's field numbers, nothing else. It copies a model field by field but leaves
// tensor data of more than kPayloadBytes in the file and notes the position in TensorProto.payload_*. Parts that are
// refused or ignored later are walked and left empty: attributes that are lists of tensors, of graphs or of sparse
// tensors, and the initialization of a training_info.
//
// Memory: the skeleton has at most kMaxSkeletonBytes. Parsed, it takes at most kParseBytes + kParseBytesPerByte * (size
// of the skeleton). Both limits are checked before protobuf parses. They allow long texts and about 150,000 nodes. On
// top of that, the graph that is built from these nodes takes twice as much memory.
#pragma once

#include <cstdint>
#include <string>

#include "base/files.h"

namespace protrain::onnx_import {

inline constexpr std::uint64_t kPayloadBytes = 1 << 10;
inline constexpr std::uint64_t kMaxFileBytes = 0x7fffffff - 1;  // protobuf's limit; a larger file holds no model
inline constexpr std::uint64_t kMaxSkeletonBytes = 32 << 20;
inline constexpr std::uint64_t kParseBytes = 64 << 20;
inline constexpr std::uint64_t kParseBytesPerByte = 2;
inline constexpr int kMaxSubgraphDepth = 32;
inline constexpr int kMaxGroupDepth = 32;

// Returns a serialized ModelProto of onnx_import/model.proto. Code::format, Code::limit; Code::io if reading fails.
std::string read_skeleton(const File &file);

}  // namespace protrain::onnx_import
