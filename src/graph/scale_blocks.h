// ScaleBlocks: the elements of a quantised tensor that share a scale.
#pragma once

#include <cstdint>
#include <string>

#include "graph/attributes.h"

namespace protrain::graph {

// The tensor is seen as (outer, length, inner), where `length` is the size of the axis along which scales change. Along
// this axis, `block` neighbouring indices form a block and share a scale. `outer_step`, `block_step` and `inner_step`
// are distances in the array of scales: from an outer index, a block or an inner index to the next one. A step is 0 if
// the scale is the same for all outer indices, all blocks or all inner indices.
struct ScaleBlocks {
  std::int64_t outer = 1, length = 1, inner = 1;
  std::int64_t block = 1;
  std::int64_t outer_step = 0, block_step = 0, inner_step = 0;

  std::int64_t scale_of(std::int64_t element) const {
    const std::int64_t row = element / inner;
    return row / length * outer_step + row % length / block * block_step + element % inner * inner_step;
  }
};

// Reads the attributes `axis` and `block_size` of ONNX's QuantizeLinear and DequantizeLinear. A single scale serves the
// whole tensor, and a vector has one scale for each index along the axis. With `block_size`, the axis is cut into
// blocks: `scale` has the tensor's shape, but only one element for each block along the axis. Code::shape if `scale`
// has none of these shapes.
ScaleBlocks scale_blocks(const Attributes &attributes, const Shape &tensor, const Shape &scale,
                         const std::string &subject);

}  // namespace protrain::graph
