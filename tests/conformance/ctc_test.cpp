// Compares CtcLoss and its gradient with their references. Largest error allowed: 1e-5.
#include "conformance/contest.h"

namespace protrain::test::ctc_test {
namespace {

PROTRAIN_FAMILY(CtcLossKernel);

struct Speech {
  std::int64_t samples, times, classes, width, blank;
};

Attributes with_blank(std::int64_t blank) { return {{"blank", blank}, {"ignore_index", std::int64_t{-100}}}; }

// Labels (samples, width) of few classes, so that neighbours are often equal. Of three successive samples, the first
// has all of its labels, the second has the first half of them, and the third has none.
Array labels(const Speech &s, DType dtype = DType::i64) {
  const std::int64_t few = std::min<std::int64_t>(s.classes - 1, 3);
  std::vector<std::int64_t> values = random_integers({s.samples, s.width}, 5, 0, few).integers();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] >= s.blank) ++values[i];
    const std::int64_t n = static_cast<std::int64_t>(i) / s.width, place = static_cast<std::int64_t>(i) % s.width;
    if (n % 3 == 2 || (n % 3 == 1 && place >= s.width / 2)) values[i] = -100;
  }
  return Array::from_integers({dtype, {s.samples, s.width}}, values);
}

Array lengths(const Speech &s, DType dtype = DType::i64) {
  return random_integers({s.samples}, 6, s.times / 2, s.times + 1, dtype);
}

OneNode gradient_of(const OneNode &loss) {
  OneNode node = loss;
  node.op = "CtcLossGrad";
  node.inputs.insert(node.inputs.begin(), floats({}, {0.75}));
  return node;
}

TEST_P(CtcLossKernel, IsTheReferenceAndSoIsItsGradient) {
  for (const Speech &s : {Speech{1, 1, 2, 1, 0},
                          {5, 12, 7, 4, 0},
                          {4, 40, 33, 12, 32},
                          {3, 30, 1100, 5, 700},
                          {2, 9, 6, 40, 1},
                          {3, 8, 5, 0, 0}}) {
    const OneNode plain{
        "CtcLoss", with_blank(s.blank), {random_floats({s.samples, s.times, s.classes}, 1, -4, 4), labels(s)}};
    OneNode shorter = plain;
    shorter.inputs[1] = labels(s, DType::i32);
    shorter.inputs.push_back(lengths(s, DType::i32));
    for (const OneNode &node : {plain, shorter}) {
      expect_reference(node);
      expect_reference(gradient_of(node));
    }
  }
}

// The first sample has four labels for three time steps, so no path spells them. Its loss and its gradient are 0.
TEST_P(CtcLossKernel, ASampleThatNoPathSpellsIsLeftOut) {
  const Array logits = random_floats({2, 3, 4}, 1);
  const OneNode node{
      "CtcLoss", with_blank(0), {logits, Array::from_integers({DType::i64, {2, 4}}, {1, 2, 3, 1, 2, 1, -100, -100})}};
  ASSERT_GT(reference(node)[0].doubles()[0], 0);
  expect_reference(node);
  expect_reference(gradient_of(node));
}

// The probability of such a long sequence is too small for float64, so kernels must compute with its logarithm.
TEST_P(CtcLossKernel, ALongSampleHasAFiniteLoss) {
  const Speech s = {1, 600, 12, 200, 0};
  const OneNode node{"CtcLoss", with_blank(0), {random_floats({1, 600, 12}, 1, -6, 6), labels(s)}};
  ASSERT_GT(reference(node)[0].doubles()[0] * 200, 800);
  expect_reference(node);
  expect_reference(gradient_of(node));
}

// A logit of -inf excludes its class.
TEST_P(CtcLossKernel, AClassThatCannotBeIsOnNoPath) {
  std::vector<double> logits = random_floats({2, 6, 5}, 1).doubles();
  for (std::size_t i = 4; i < logits.size(); i += 5) logits[i] = -HUGE_VAL;
  logits[1] = -HUGE_VAL;
  const OneNode node{
      "CtcLoss", with_blank(0), {floats({2, 6, 5}, logits), Array::from_integers({DType::i64, {2, 2}}, {1, 2, 3, 3})}};
  expect_reference(node);
  expect_reference(gradient_of(node));
}

TEST_P(CtcLossKernel, WhatIsNoLabelOrNoLengthIsAnErrorThatNamesIt) {
  const Array logits = random_floats({2, 4, 5}, 1);
  const auto with = [&](std::int64_t label, std::int64_t length) {
    return OneNode{"CtcLoss",
                   with_blank(3),
                   {logits, Array::from_integers({DType::i64, {2, 2}}, {1, 2, label, 4}),
                    Array::from_integers({DType::i64, {2}}, {4, length})}};
  };
  for (const bool gradient : {false, true}) {
    const auto refused = [&](const OneNode &node, const std::string &text) {
      expect_error(gradient ? gradient_of(node) : node, text);
    };
    for (const std::int64_t label : {5, -1})
      refused(with(label, 4), "label " + std::to_string(label) + " of row 2 is outside 0..4");
    refused(with(3, 4), "label 3 of row 2 is the blank");
    for (const std::int64_t length : {5, -1})
      refused(with(1, length), "length " + std::to_string(length) + " of sample 1 is outside 0..4");
  }
}

}  // namespace
}  // namespace protrain::test::ctc_test
