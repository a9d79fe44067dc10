#include <gtest/gtest.h>

#include "activations.h"
#include "ops/gradient_check.h"

namespace protrain::test::gated_test {
namespace {

std::string activation_of(const Attributes &attributes) { return attributes.text("activation", ""); }

Array spread(const Shape &shape, unsigned seed) { return random_doubles(shape, seed, -2.03, 2.07); }

TEST(GatedOp, IsTheActivationTimesTheOther) {
  const Array g = spread({2, 5}, 1), u = spread({2, 5}, 2);
  for (const Attributes &attributes : kActivations) {
    const Array activated = evaluate(activation_of(attributes), attributes, {g})[0];
    EXPECT_TRUE(evaluate("Gated", attributes, {g, u})[0].same_as(evaluate("Mul", {}, {activated, u})[0]));
  }
}

TEST(GatedOp, GradientsMatchFiniteDifferences) {
  for (const Attributes &attributes : kActivations)
    for (const Shape &shape : {Shape{7}, Shape{2, 1, 3}, Shape{}})
      expect_gradient({.op = "Gated", .attributes = attributes, .inputs = {spread(shape, 3), spread(shape, 4)}});
}

TEST(GatedOp, GivesGradientsOnlyWhereTheyAreWanted) {
  for (std::size_t fixed : {0, 1})
    expect_gradient(
        {.op = "Gated", .attributes = kActivations[0], .inputs = {spread({5}, 5), spread({5}, 6)}, .fixed = {fixed}});
  OneNodeGraph one(
      {.op = "Gated", .attributes = kActivations[0], .inputs = {spread({5}, 5), spread({5}, 6)}, .fixed = {0, 1}});
  EXPECT_EQ(one.differentiate(), (std::vector<ValueId>{ValueId::none, ValueId::none}));
  EXPECT_EQ(one.graph.node_count(), 1u);
}

TEST(GatedOp, RoundsOnce) {
  const Array g = Array::from_doubles({DType::bf16, {1}}, {1.25}), u = Array::from_doubles({DType::bf16, {1}}, {-3.5});
  const double exact = -3.5 * 1.25 / (1 + std::exp(-1.25));
  EXPECT_TRUE(evaluate("Gated", kActivations[0], {g, u})[0].same_as(Array::from_doubles({DType::bf16, {1}}, {exact})));
}

TEST(GatedOp, RefusesWhatItDoesNotTake) {
  const Attributes silu = kActivations[0];
  const auto code = [](const Attributes &attributes, const Array &g, const Array &u) {
    return code_of([&] { evaluate("Gated", attributes, {g, u}); });
  };
  EXPECT_EQ(code(silu, spread({2, 3}, 7), spread({3}, 8)), Code::shape);
  EXPECT_EQ(code(silu, Array::integers({1}), Array::integers({1})), Code::type);
  EXPECT_EQ(code({{"activation", std::string("Softmax")}}, spread({2}, 7), spread({2}, 8)), Code::unsupported);
  EXPECT_EQ(code({}, spread({2}, 7), spread({2}, 8)), Code::unsupported);
}

}  // namespace
}  // namespace protrain::test::gated_test
