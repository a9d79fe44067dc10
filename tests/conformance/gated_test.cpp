#include "activations.h"
#include "conformance/contest.h"

namespace protrain::test::gated_test {
namespace {

PROTRAIN_FAMILY(GatedKernel);

const Shape kShapes[] = {{}, {0}, {7}, {3, 0, 5}, {5, 1031}};

OneNode gradient(const Attributes &attributes, const Shape &shape, std::vector<bool> wanted) {
  return {"GatedGrad",
          attributes,
          {random_floats(shape, 1), random_floats(shape, 2, -9, 9), random_floats(shape, 3)},
          std::move(wanted)};
}

TEST_P(GatedKernel, ValuesMatchTheReference) {
  for (const Attributes &attributes : kActivations)
    for (const Shape &shape : kShapes)
      expect_reference({"Gated", attributes, {random_floats(shape, 4, -9, 9), random_floats(shape, 5)}});
}

TEST_P(GatedKernel, GradientsMatchTheReference) {
  for (const Attributes &attributes : kActivations)
    for (const Shape &shape : kShapes) expect_reference(gradient(attributes, shape, {true, true}));
}

TEST_P(GatedKernel, AGradientThatNobodyWantsIsNotMade) {
  for (const Attributes &attributes : kActivations) {
    expect_reference(gradient(attributes, {5, 1031}, {true, false}));
    expect_reference(gradient(attributes, {5, 1031}, {false, true}));
  }
}

TEST_P(GatedKernel, WhatGatesItselfIsReadTwice) {
  const Array x = random_floats({5, 1031}, 6, -9, 9);
  expect_reference({"Gated", kActivations[0], {x, x}});
}

}  // namespace
}  // namespace protrain::test::gated_test
