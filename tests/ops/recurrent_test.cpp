#include <gtest/gtest.h>

#include "ops/gradient_check.h"
#include "recurrent_nodes.h"

namespace protrain::test::recurrent_test {
namespace {

constexpr std::int64_t kOn = 1;

// Returns the test of a node's gradient, with the node's operands in float64. Leaves out the operands at `absent`.
GradientCase gradient_case(const OneNode &node, const std::vector<std::size_t> &absent) {
  GradientCase made{
      .op = node.op, .attributes = node.attributes, .inputs = node.inputs, .outputs = node.outputs.size()};
  for (Array &input : made.inputs)
    if (input.dtype() == DType::f32) input = Array::from_doubles({DType::f64, input.shape()}, input.doubles());
  for (std::size_t i : absent)
    if (i < made.inputs.size()) made.inputs[i] = Array();
  if (node.op == "LstmSteps") made.weighted = {0, 2};
  return made;
}

TEST(RecurrentOps, GradientsMatchFiniteDifferencesInEveryForm) {
  unsigned seed = 1;
  for (const auto &[op, attributes] : recurrent_forms()) {
    const OneNode node = recurrent(op, {4, 3, 3}, attributes, seed += 10);
    expect_gradient(gradient_case(node, {}));
  }
}

TEST(RecurrentOps, GradientsMatchFiniteDifferencesWithoutOptionalOperands) {
  for (const auto &[op, attributes] : recurrent_forms())
    for (const std::vector<std::size_t> &absent : {std::vector<std::size_t>{2, 3}, {3, 4}, {2, 3, 4, 5}})
      expect_gradient(gradient_case(recurrent(op, {3, 2, 3}, attributes, 7), absent));
}

TEST(RecurrentOps, GradientsMatchFiniteDifferencesOfASingleStep) {
  for (const char *op : {"LstmSteps", "GruSteps", "RnnSteps"})
    expect_gradient(gradient_case(recurrent(op, {1, 2, 2}, {}, 3), {}));
}

// The loss depends on output 2 alone, which holds the cells.
TEST(RecurrentOps, AnLstmHasAGradientFromItsCells) {
  GradientCase given = gradient_case(recurrent("LstmSteps", {3, 2, 3}, {{"reverse", kOn}}, 5), {});
  given.weighted = {2};
  expect_gradient(given);
}

TEST(RecurrentOps, ASampleKeepsItsStateBeyondItsLength) {
  const Array x = Array::from_doubles({DType::f64, {3, 1, 1}}, {1, 2, 4}), r = Array::filled({DType::f64, {1, 1}}, 0),
              h = Array::filled({DType::f64, {1, 1}}, 9), length = Array::from_integers({DType::i32, {1}}, {2});
  const Attributes sum = {{"f", std::string("Affine")}, {"f_alpha", 1.0}, {"f_beta", 0.0}};
  EXPECT_EQ(evaluate("RnnSteps", sum, {x, r, h, length})[0].doubles(), (std::vector<double>{1, 2, 2}));
  Attributes back = sum;
  back.set("reverse", kOn);
  EXPECT_EQ(evaluate("RnnSteps", back, {x, r, h, length})[0].doubles(), (std::vector<double>{1, 2, 9}));
}

TEST(RecurrentOps, RefuseOperandsThatDoNotFit) {
  OneNode node = recurrent("GruSteps", {3, 2, 4}, {}, 1);
  node.inputs[1] = random_floats({12, 5}, 2);
  EXPECT_EQ(code_of([&] { types_of_all_outputs(node); }), Code::shape);
  const OneNode unknown = {"RnnSteps", {{"f", std::string("Cube")}}, recurrent("RnnSteps", {2, 1, 1}, {}, 1).inputs};
  EXPECT_EQ(code_of([&] { types_of_all_outputs(unknown); }), Code::unsupported);
}

}  // namespace
}  // namespace protrain::test::recurrent_test
