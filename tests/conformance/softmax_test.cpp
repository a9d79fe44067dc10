#include <limits>

#include "conformance/contest.h"

namespace protrain::test::softmax_test {
namespace {

PROTRAIN_FAMILY(SoftmaxKernel);
PROTRAIN_FAMILY(SoftmaxGradKernel);

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  Shape shape;
  std::int64_t axis;
};
const Case kCases[] = {{{1}, 0},       {{7}, -1},           {{31, 67}, -1},       {{31, 67}, 0},
                       {{5, 1031}, 1}, {{3, 17, 5, 11}, 1}, {{3, 17, 5, 11}, -2}, {{3, 1, 5}, 1},
                       {{0, 5}, 1},    {{5, 0}, 0},         {{2, 32}, -1},        {{2, 64}, -1}};

TEST_P(SoftmaxKernel, AnyAxisOfAnyShape) {
  for (const char *op : {"Softmax", "LogSoftmax"})
    for (const auto &[shape, axis] : kCases) expect_reference({op, {{"axis", axis}}, {random_floats(shape, 1, -8, 8)}});
}

TEST_P(SoftmaxKernel, TheLastAxisIsTheDefault) { expect_reference({"Softmax", {}, {random_floats({31, 67}, 2)}}); }

TEST_P(SoftmaxGradKernel, MatchesTheReferenceForAnyAxis) {
  for (const std::string op : {"Softmax", "LogSoftmax"})
    for (const auto &[shape, axis] : kCases) {
      const Attributes attributes{{"axis", axis}};
      const Array y = reference({op, attributes, {random_floats(shape, 3, -3, 3)}})[0];
      expect_reference({op + "Grad", attributes, {random_floats(shape, 4), y}});
    }
}

TEST_P(SoftmaxKernel, LargeScoresDoNotOverflow) {
  const Array x = floats({2, 3}, {1000, 999, -1000, 3e38, -3e38, 0});
  for (const char *op : {"Softmax", "LogSoftmax"}) expect_reference({op, {}, {x}});
}

TEST_P(SoftmaxKernel, MaskedScoresGetNothing) {
  const Array x = floats({2, 3}, {1, -kInfinity, 2, -kInfinity, -kInfinity, -kInfinity});
  for (const char *op : {"Softmax", "LogSoftmax"}) expect_reference({op, {}, {x}});
}

}  // namespace
}  // namespace protrain::test::softmax_test
