// Resize becomes products with matrices of weights, or picks the nearest elements, or is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "passes/canonical/fold_budget.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::resize_rule_test {
namespace {

// The mode tf_crop_and_resize resizes only a region of x. The region may be smaller than x even if the result is as
// large as x, so a Resize in this mode is refused whatever the size of its result.
TEST(Resize, OfARegionIsRefusedWhateverItsSize) {
  for (const std::int64_t height : {4, 8}) {
    HandBuilt b;
    const ValueId x = b.input("x", {1, 1, 4, 4}, DType::f32);
    const ValueId region = b.constant(Array::from_doubles({DType::f32, {8}}, {0, 0, 0, 0, 1, 1, 0.5, 0.5}));
    const ValueId sizes = b.integers({1, 1, height, 4});
    b.graph.outputs = {b.add(
        "Resize", {x, region, ValueId::none, sizes},
        {{"mode", std::string("linear")}, {"coordinate_transformation_mode", std::string("tf_crop_and_resize")}})};
    passes::FoldBudget budget(b.graph);
    const auto refusals = passes::fold(b.graph, budget);
    ASSERT_EQ(refusals.size(), 1u) << height;
    EXPECT_NE(refusals.begin()->second.find("tf_crop_and_resize"), std::string::npos) << refusals.begin()->second;
    EXPECT_EQ(histogram(b.graph), (std::map<std::string, int>{{"Resize", 1}}));
  }
}

// The elements must be picked by a Gather. A product with a matrix of 0 and 1 would multiply the infinity by 0, and so
// turn every other element into NaN.
TEST(Resize, ToTheNearestElementKeepsInfinitiesApart) {
  HandBuilt b;
  const ValueId x = b.input("x", {1, 1, 1, 3}, DType::f32), none = ValueId::none;
  b.graph.outputs = {b.add("Resize", {x, none, none, b.integers({1, 1, 1, 6})}, {{"mode", std::string("nearest")}})};
  passes::fold(b.graph);
  EXPECT_EQ(histogram(b.graph), (std::map<std::string, int>{{"Gather", 1}}));
  const Array values = Array::from_doubles({DType::f32, {1, 1, 1, 3}}, {1, -HUGE_VAL, 3});
  EXPECT_EQ(ops::interpret(b.graph, {{x, values}}).at(index(b.graph.outputs[0])).doubles(),
            (std::vector<double>{1, 1, -HUGE_VAL, -HUGE_VAL, 3, 3}));
}

}  // namespace
}  // namespace protrain::test::resize_rule_test
