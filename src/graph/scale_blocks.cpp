#include "graph/scale_blocks.h"

#include <algorithm>

#include "base/error.h"

namespace protrain::graph {

ScaleBlocks scale_blocks(const Attributes &attributes, const Shape &tensor, const Shape &scale,
                         const std::string &subject) {
  const std::int64_t block = attributes.integer("block_size", 0);
  require(block >= 0, Code::arg, subject, "a block_size of {}", block);
  ScaleBlocks blocks;
  if (block == 0 && element_count(scale) == 1 && scale.size() <= 1) {
    blocks.inner = element_count(tensor);
    return blocks;
  }
  const std::size_t axis = resolve_axis(attributes.integer("axis", 1), tensor.size(), subject);
  const auto at = tensor.begin() + static_cast<std::ptrdiff_t>(axis);
  blocks.outer = element_count({tensor.begin(), at});
  blocks.length = *at;
  blocks.inner = element_count({at + 1, tensor.end()});
  blocks.block = std::clamp<std::int64_t>(block, 1, std::max<std::int64_t>(blocks.length, 1));
  Shape expected = {blocks.length};
  if (block > 0) {
    expected = tensor;
    expected[axis] = divided_up(blocks.length, block);
  }
  require(scale == expected, Code::shape, subject, "scales of {} for {}{}; expected {}", to_text(scale),
          to_text(tensor), block > 0 ? fmt::format(" in blocks of {}", block) : "", to_text(expected));
  blocks.block_step = block == 0 ? 1 : blocks.inner;
  blocks.inner_step = block == 0 ? 0 : 1;
  blocks.outer_step = block == 0 ? 0 : expected[axis] * blocks.inner;
  return blocks;
}

}  // namespace protrain::graph
