#include "conformance/contest.h"

namespace protrain::test::normalization_test {
namespace {

PROTRAIN_FAMILY(NormalizationKernel);
PROTRAIN_FAMILY(NormalizationGradKernel);

struct Case {
  Shape shape;
  std::int64_t axis;
};
const Case kCases[] = {{{1, 1}, -1},       {{7}, 0},        {{31, 67}, -1},  {{3, 17, 96}, -1},
                       {{3, 5, 7, 11}, 2}, {{5, 1031}, 1},  {{67, 33}, -1},  {{300, 8}, -1},
                       {{9001, 3}, -1},    {{0, 8}, -1},    {{2, 3, 40}, 0}, {{37, 72}, -1},
                       {{9, 640}, -1},     {{5, 2048}, -1}, {{3, 4104}, 1}};  // a thread reads one or many vectors

Shape tail(const Case &c) {
  const std::size_t axis = resolve_axis(c.axis, c.shape.size(), "");
  return Shape(c.shape.begin() + static_cast<std::ptrdiff_t>(axis), c.shape.end());
}
Attributes attributes(const Case &c, double epsilon = 1e-5) { return {{"axis", c.axis}, {"epsilon", epsilon}}; }

TEST_P(NormalizationKernel, LayerNormalizationMatchesTheReference) {
  for (const Case &c : kCases)
    for (bool with_bias : {true, false}) {
      OneNode one{"LayerNormalization",
                  attributes(c),
                  {random_floats(c.shape, 1, -2, 3), random_floats(tail(c), 2, 0.5, 2)},
                  {true, true, true}};
      if (with_bias) one.inputs.push_back(random_floats(tail(c), 3));
      expect_reference(one, 5e-5);
    }
}

TEST_P(NormalizationKernel, RmsNormalizationMatchesTheReference) {
  for (const Case &c : kCases)
    expect_reference({"RMSNormalization",
                      attributes(c, 1e-6),
                      {random_floats(c.shape, 4, -2, 3), random_floats(tail(c), 5, 0.5, 2)},
                      {true, true}},
                     2e-5);
}

TEST_P(NormalizationKernel, MomentsThatNobodyWantsAreSkipped) {
  const Case c{{31, 67}, -1};
  const std::vector<Array> operands{random_floats(c.shape, 6), random_floats(tail(c), 7)};
  expect_reference({"LayerNormalization", attributes(c), operands, {true, false, false}}, 2e-5);
  expect_reference({"RMSNormalization", attributes(c), operands, {true, false}}, 2e-5);
}

TEST_P(NormalizationKernel, AMeanFarFromZeroDoesNotSpoilTheVariance) {
  expect_reference({"LayerNormalization",
                    attributes({{5, 257}, -1}),
                    {random_floats({5, 257}, 8, 1000, 1001), random_floats({257}, 9)},
                    {true, true, true}},
                   1e-3);
}

// A gradient node, which reads the mean and deviation that the reference computes.
OneNode layer_grad(const Case &c, std::vector<bool> outputs) {
  const Array x = random_floats(c.shape, 10, -2, 3), scale = random_floats(tail(c), 11, 0.5, 2);
  const std::vector<Array> y = reference({"LayerNormalization", attributes(c), {x, scale}, {true, true, true}});
  return {"LayerNormalizationGrad", attributes(c), {random_floats(c.shape, 12), x, scale, y[1], y[2]}, outputs};
}
OneNode rms_grad(const Case &c, std::vector<bool> outputs) {
  const Array x = random_floats(c.shape, 13, -2, 3), scale = random_floats(tail(c), 14, 0.5, 2);
  const std::vector<Array> y = reference({"RMSNormalization", attributes(c), {x, scale}, {true, true}});
  return {"RMSNormalizationGrad", attributes(c), {random_floats(c.shape, 15), x, scale, y[1]}, outputs};
}

TEST_P(NormalizationGradKernel, MatchesTheReferenceWhateverTheTeam) {
  for (const Case &c : kCases) {
    expect_reference(layer_grad(c, {true, true, true}), 5e-5);
    expect_reference(rms_grad(c, {true, true}), 5e-5);
  }
}

TEST_P(NormalizationGradKernel, GradientsThatNobodyWantsAreSkipped) {
  const Case c{{67, 33}, -1};
  for (int wanted = 1; wanted < 8; ++wanted)
    expect_reference(layer_grad(c, {(wanted & 1) != 0, (wanted & 2) != 0, (wanted & 4) != 0}), 5e-5);
  for (int wanted = 1; wanted < 4; ++wanted)
    expect_reference(rms_grad(c, {(wanted & 1) != 0, (wanted & 2) != 0}), 5e-5);
}

TEST_P(NormalizationGradKernel, AddsWhatTheGradientWasBefore) {
  for (const Case &c : kCases)
    for (OneNode node :
         {layer_grad(c, {true, true, true}), rms_grad(c, {true, true}), layer_grad(c, {true, false, false}),
          rms_grad(c, {true, false}), layer_grad(c, {false, true, true}), rms_grad(c, {false, true})}) {
      node.inputs.push_back(random_floats(c.shape, 16, -3, 3));
      expect_reference(node, 5e-5);
    }
}

}  // namespace
}  // namespace protrain::test::normalization_test
