#include <limits>

#include "conformance/contest.h"

namespace protrain::test::reduce_test {
namespace {

PROTRAIN_FAMILY(ReduceKernel);

using Axes = std::vector<std::int64_t>;
const char *const kReductions[] = {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"};

struct Case {
  Shape shape;
  Axes axes;
};
const Case kCases[] = {
    {{}, {}},
    {{1}, {0}},
    {{7}, {}},
    {{13, 17, 19}, {}},
    {{13, 17, 19}, {0}},
    {{13, 17, 19}, {1}},
    {{13, 17, 19}, {-1}},
    {{13, 17, 19}, {0, 1}},
    {{13, 17, 19}, {0, 2}},
    {{13, 17, 19}, {1, 2}},
    {{3, 5, 7, 11}, {0, 2}},
    {{3, 5, 7, 11}, {1, 3}},
    {{3, 1, 7, 1}, {1, 3}},
    {{3, 1, 7, 1}, {0, 1}},
    {{1, 1, 1}, {1}},
    {{997, 3}, {0}},       // many blocks of short rows
    {{2, 9001}, {1}},      // rows of several segments
    {{70001}, {0}},        // several blocks of segments
    {{20011, 5}, {0}},     // blocks of more than the least length
    {{4, 2053}, {0}},      // few long rows
    {{3, 67, 1031}, {1}},  // two blocks for each result
    {{1037, 96}, {0}},     // like the gradient of a bias
    {{70, 3, 520}, {0, 1}},
    {{2, 72}, {0}},
};

TEST_P(ReduceKernel, AnyAxesOfAnyShape) {
  for (const char *op : kReductions)
    for (const auto &[shape, axes] : kCases)
      for (std::int64_t keep : {0, 1}) {
        Attributes attributes{{"keepdims", keep}};
        if (!axes.empty()) attributes.set("axes", axes);
        expect_reference({op, attributes, {random_floats(shape, 1, -1, 1)}}, 2e-5);
      }
}

TEST_P(ReduceKernel, LongSumsStayAccurate) {  // a few units in the last place
  for (const Shape &shape : {Shape{1000003}, Shape{250007, 4}})
    expect_reference({"ReduceSum", {{"axes", Axes{0}}}, {random_floats(shape, 2, 0, 1)}}, 1e-6);
}

TEST_P(ReduceKernel, NoAxesCanMeanNothingToReduce) {
  expect_reference(
      {"ReduceSum", {{"noop_with_empty_axes", std::int64_t{1}}, {"axes", Axes{}}}, {random_floats({5, 301}, 3)}});
}

TEST_P(ReduceKernel, SumsOfNothingAreZero) {
  for (const auto &[shape, axes] : {Case{{0}, {0}}, Case{{3, 0}, {1}}, Case{{0, 3}, {0}}, Case{{3, 0}, {0}}})
    expect_reference({"ReduceSum", {{"axes", axes}}, {random_floats(shape, 4)}});
}

TEST_P(ReduceKernel, NotANumberIsTheLargestAndTheSmallest) {
  std::vector<double> values(100, 1.0);
  values[63] = std::numeric_limits<double>::quiet_NaN();
  for (const char *op : {"ReduceMax", "ReduceMin", "ReduceSum"})
    for (std::int64_t axis : {0, 1}) expect_reference({op, {{"axes", Axes{axis}}}, {floats({10, 10}, values)}});
}

TEST(CudaReduce, TakesScratchOnlyForResultsThatAreMadeInParts) {
  const auto scratch = [](const Shape &shape, std::int64_t axis, const Shape &result) {
    const graph::Node node{.op = "ReduceSum", .name = "sum", .attributes = {{"axes", Axes{axis}}}};
    const auto kernel =
        contenders()[1].ways[0].machine->device->compile({node, {{DType::f32, shape}}, {{DType::f32, result}}});
    return kernel->scratch_bytes;
  };
  EXPECT_EQ(scratch({4, 100}, 0, {1, 100}), 0U);
  EXPECT_EQ(scratch({4, 100}, 1, {4, 1}), 0U);
  EXPECT_EQ(scratch({10, 100}, 0, {1, 100}), 0U);  // sums of columns
  EXPECT_EQ(scratch({40, 100}, 0, {1, 100}), 2 * 100 * sizeof(double));
}

}  // namespace
}  // namespace protrain::test::reduce_test
