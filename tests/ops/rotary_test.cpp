#include <gtest/gtest.h>

#include "ops/gradient_check.h"

namespace protrain::test::rotary_test {
namespace {

Attributes form(std::int64_t interleaved, std::int64_t rotated) {
  return {{"interleaved", interleaved}, {"rotary_dim", rotated}};
}

TEST(RotaryOp, GradientMatchesFiniteDifferences) {
  for (const std::int64_t interleaved : {0, 1})
    for (const std::int64_t rotated : {4, 6})
      for (const std::int64_t batch : {1, 2})
        expect_gradient({.op = "Rotary",
                         .attributes = form(interleaved, rotated),
                         .inputs = {random_doubles({2, 3, 2, 6}, 1), random_doubles({batch, 3, rotated / 2}, 2),
                                    random_doubles({batch, 3, rotated / 2}, 3)},
                         .fixed = {1, 2}});
}

TEST(RotaryOp, RotatesHalvesOrNeighboursAndLeavesTheRest) {
  const Array x = Array::from_doubles({DType::f64, {1, 1, 1, 5}}, {1, 2, 3, 4, 5});
  const Array zero = Array::filled({DType::f64, {1, 1, 2}}, 0), one = Array::filled({DType::f64, {1, 1, 2}}, 1);
  EXPECT_EQ(evaluate("Rotary", form(0, 4), {x, zero, one})[0].doubles(), (std::vector<double>{-3, -4, 1, 2, 5}));
  EXPECT_EQ(evaluate("Rotary", form(1, 4), {x, zero, one})[0].doubles(), (std::vector<double>{-2, 1, -4, 3, 5}));
}

TEST(RotaryOp, RefusesATableOfAnotherLength) {
  const Array table = random_doubles({1, 4, 3}, 2);
  EXPECT_EQ(code_of([&] { evaluate("Rotary", {}, {random_doubles({2, 3, 2, 6}, 1), table, table}); }), Code::shape);
}

}  // namespace
}  // namespace protrain::test::rotary_test
