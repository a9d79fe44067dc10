#include "conformance/contest.h"

namespace protrain::test::along_axis_test {
namespace {

PROTRAIN_FAMILY(CumSumKernel);
PROTRAIN_FAMILY(ArgKernel);
PROTRAIN_FAMILY(TopKKernel);
PROTRAIN_FAMILY(ReduceIntegers);

Attributes axis(std::int64_t axis) { return {{"axis", axis}}; }

TEST_P(CumSumKernel, EitherWayAlongAnyAxis) {
  for (std::int64_t along : {0, 1, -1})
    for (std::int64_t exclusive : {0, 1})
      for (std::int64_t reverse : {0, 1}) {
        Attributes attributes = axis(along);
        attributes.set("exclusive", exclusive);
        attributes.set("reverse", reverse);
        expect_reference({"CumSum", attributes, {random_floats({5, 7, 11}, 1)}});
        expect_reference({"CumSum", attributes, {random_integers({5, 7, 11}, 2, -9, 9)}});
        expect_reference({"CumSum", attributes, {random_integers({5, 7, 11}, 3, -9, 9, DType::i32)}});
      }
}

TEST_P(CumSumKernel, AlongMoreThanAWarpHolds) {
  for (const Shape &shape : {Shape{3, 64}, Shape{3, 100}, Shape{2, 1}, Shape{2, 0}, Shape{0, 40}})
    for (std::int64_t reverse : {0, 1}) {
      const Attributes attributes = {{"axis", std::int64_t{1}}, {"reverse", reverse}};
      expect_reference({"CumSum", attributes, {random_floats(shape, 1)}});
      expect_reference({"CumSum", attributes, {random_integers(shape, 2, -9, 9)}});
    }
}

TEST_P(ArgKernel, FirstOrLastOfEqualElements) {
  for (const char *op : {"ArgMax", "ArgMin"})
    for (std::int64_t along : {0, 1, 2})
      for (std::int64_t last : {0, 1}) {
        Attributes attributes = axis(along);
        attributes.set("select_last_index", last);
        attributes.set("keepdims", std::int64_t{1});
        expect_reference({op, attributes, {random_integers({4, 9, 5}, 4, 0, 3)}});
        expect_reference({op, attributes, {random_floats({4, 9, 5}, 5)}});
      }
}

TEST_P(ArgKernel, AmongMoreThanABlockHolds) {
  for (const char *op : {"ArgMax", "ArgMin"})
    for (std::int64_t last : {0, 1}) {
      const Attributes attributes = {
          {"axis", std::int64_t{1}}, {"select_last_index", last}, {"keepdims", std::int64_t{0}}};
      for (std::int64_t length : {1, 40, 1500}) {
        expect_reference({op, attributes, {random_integers({3, length}, 6, -4, 4)}});
        expect_reference({op, attributes, {random_floats({3, length}, 7)}});
        expect_reference({op, attributes, {Array::filled({DType::f32, {3, length}}, -HUGE_VAL)}});
      }
    }
}

// Kernels must treat NaN as the reference does. A first element that is NaN is the result. Any other NaN is ignored.
TEST_P(ArgKernel, PassesOverNaNsButTheFirstElement) {
  for (const char *op : {"ArgMax", "ArgMin"})
    for (std::int64_t last : {0, 1}) {
      const Attributes attributes = {{"axis", std::int64_t{1}}, {"select_last_index", last}};
      expect_reference({op, attributes, {floats({3, 3}, {NAN, 1, 2, 1, NAN, 2, 2, 1, NAN})}});
    }
}

TEST_P(TopKKernel, ValuesAndPlacesOfEither) {
  for (std::int64_t along : {0, 1, -1})
    for (std::int64_t largest : {0, 1}) {
      Attributes attributes = axis(along);
      attributes.set("largest", largest);
      attributes.set("k", std::int64_t{3});
      expect_reference({"TopK", attributes, {random_floats({6, 9, 5}, 6)}, {true, true}});
      expect_reference({"TopK", attributes, {Array::filled({DType::f32, {6, 9, 5}}, 1)}, {true, true}});
      expect_reference({"TopK", attributes, {random_floats({6, 9, 5}, 7)}, {false, true}});
      expect_reference({"TopK", attributes, {random_integers({6, 9, 5}, 8, -3, 4)}, {true, true}});
    }
}

TEST_P(ReduceIntegers, SumsAndExtremes) {
  using Axes = std::vector<std::int64_t>;
  for (const char *op : {"ReduceSum", "ReduceMax", "ReduceMin"})
    for (const Axes &axes : {Axes{}, Axes{0}, Axes{1}, Axes{2}, Axes{0, 2}})
      for (DType dtype : {DType::i64, DType::i32})
        for (std::int64_t none_means_none : {0, 1})
          expect_reference({op,
                            {{"axes", axes}, {"noop_with_empty_axes", none_means_none}},
                            {random_integers({4, 9, 5}, 8, -1000, 1000, dtype)}});
}

}  // namespace
}  // namespace protrain::test::along_axis_test
