#include "graph/scale_blocks.h"

#include <gtest/gtest.h>

#include <limits>

namespace protrain::graph {
namespace {

ScaleBlocks blocks_of(std::int64_t block, const Shape &tensor, const Shape &scale) {
  return scale_blocks({{"axis", std::int64_t{0}}, {"block_size", block}}, tensor, scale, "node");
}

TEST(ScaleBlocks, ShareAScaleAlongTheAxis) {
  const ScaleBlocks blocks = blocks_of(2, {5, 3}, {3, 3});
  EXPECT_EQ(blocks.scale_of(0), 0);
  EXPECT_EQ(blocks.scale_of(5), 2);      // row 1, column 2
  EXPECT_EQ(blocks.scale_of(2 * 3), 3);  // row 2 begins a block
  EXPECT_EQ(blocks.scale_of(4 * 3 + 1), 7);
}

TEST(ScaleBlocks, LongerThanTheAxisAreOneBlock) {
  for (const std::int64_t block : {std::int64_t{6}, std::numeric_limits<std::int64_t>::max()}) {
    const ScaleBlocks blocks = blocks_of(block, {5, 3}, {1, 3});
    EXPECT_EQ(blocks.block, 5);
    EXPECT_EQ(blocks.scale_of(4 * 3 + 1), 1);
  }
}

}  // namespace
}  // namespace protrain::graph
