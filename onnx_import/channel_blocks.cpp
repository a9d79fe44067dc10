#include "onnx_import/channel_blocks.h"

#include <set>

namespace protrain::onnx_import {

namespace {

constexpr std::int64_t kLarge = 16, kSmall = 8;

// Returns the number of channels in ONNX Runtime's blocks on this processor: 16 with AVX-512 and on Arm, else 8.
std::int64_t channels_of_this_processor() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") != 0 ? kLarge : kSmall;
#else
  return kLarge;
#endif
}

}  // namespace

std::int64_t channels_of_a_block(const GraphProto &graph) {
  std::set<std::string> weights;
  for (const NodeProto &node : graph.node())
    if (node.domain() == kBlockedDomain && node.op_type() == "Conv" && node.input_size() > 1)
      weights.insert(node.input(1));
  for (const TensorProto &tensor : graph.initializer())
    if (weights.contains(tensor.name()) && tensor.dims_size() > 0 && tensor.dims(0) % kLarge != 0) return kSmall;
  return channels_of_this_processor();
}

}  // namespace protrain::onnx_import
