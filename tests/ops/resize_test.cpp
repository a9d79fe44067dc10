// Checks which old element Resize takes for each new one, in the mode "nearest".
#include "ops/resize.h"

#include <gtest/gtest.h>

#include <vector>

#include "graph/graph.h"

namespace protrain::test::resize_test {
namespace {

// New element 5 lies at 5.5 / (11 / 6) = 3, the border between the old elements 2 and 3. The scale is a float32, a
// little larger than 11 / 6. With this scale, the exact quotient is a little less than 3 and would give element 2. But
// frameworks round the quotient to float32, which gives 3. So element 3 is right.
TEST(ResizeOp, PicksTheNearestElementAsFloat32Does) {
  graph::Node node;
  node.op = "Resize";
  node.attributes.set("coordinate_transformation_mode", std::string("tf_half_pixel_for_nn"));
  node.attributes.set("nearest_mode", std::string("floor"));
  const double scale = static_cast<float>(11.0 / 6);
  EXPECT_EQ(ops::nearest_elements(node, {.from = 6, .to = 11, .scale = scale}),
            (std::vector<std::int64_t>{0, 0, 1, 1, 2, 3, 3, 4, 4, 5, 5}));
}

}  // namespace
}  // namespace protrain::test::resize_test
