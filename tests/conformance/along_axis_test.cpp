#include "conformance/contest.h"

namespace protrain::test {
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

TEST_P(TopKKernel, ValuesAndPlacesOfEither) {
  for (std::int64_t along : {0, 1, -1})
    for (std::int64_t largest : {0, 1}) {
      Attributes attributes = axis(along);
      attributes.set("largest", largest);
      attributes.set("k", std::int64_t{3});
      expect_reference({"TopK", attributes, {random_floats({6, 9, 5}, 6)}, {true, true}});
      expect_reference({"TopK", attributes, {Array::filled({DType::f32, {6, 9, 5}}, 1)}, {true, true}});
      expect_reference({"TopK", attributes, {random_floats({6, 9, 5}, 7)}, {false, true}});
    }
}

TEST_P(ReduceIntegers, SumsAndExtremes) {
  using Axes = std::vector<std::int64_t>;
  for (const char *op : {"ReduceSum", "ReduceMax", "ReduceMin"})
    for (const Axes &axes : {Axes{}, Axes{0}, Axes{1}, Axes{2}, Axes{0, 2}})
      for (DType dtype : {DType::i64, DType::i32})
        expect_reference({op, {{"axes", axes}}, {random_integers({4, 9, 5}, 8, -1000, 1000, dtype)}});
}

}  // namespace
}  // namespace protrain::test
