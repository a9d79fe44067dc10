#include "conformance/contest.h"

namespace protrain::test::gather_test {
namespace {

PROTRAIN_FAMILY(GatherKernel);
PROTRAIN_FAMILY(GatherGradKernel);
PROTRAIN_FAMILY(GatherElementsKernel);
PROTRAIN_FAMILY(GatherElementsGradKernel);

struct Case {
  Shape table, indices;
  std::int64_t axis;
};
const Case kCases[] = {
    {{7}, {}, 0},        {{7}, {5}, 0},           {{131, 67}, {3, 29}, 0},  {{131, 8}, {300}, 0},
    {{5, 131}, {40}, 1}, {{5, 11, 33}, {40}, -2}, {{5, 11, 3}, {2, 9}, -1}, {{4, 3}, {0}, 0},
    {{4, 0}, {5}, 0},    {{1, 256}, {9}, 0},      {{3, 2056}, {7}, 0},      {{0, 3, 2}, {4}, 1},
};

Shape gathered(const Case &c) {
  const std::size_t axis = resolve_axis(c.axis, c.table.size(), "");
  Shape shape(c.table.begin(), c.table.begin() + static_cast<std::ptrdiff_t>(axis));
  shape.insert(shape.end(), c.indices.begin(), c.indices.end());
  shape.insert(shape.end(), c.table.begin() + static_cast<std::ptrdiff_t>(axis) + 1, c.table.end());
  return shape;
}
std::int64_t extent(const Case &c) { return c.table[resolve_axis(c.axis, c.table.size(), "")]; }

TEST_P(GatherKernel, ReadsRowsOfAnyType) {
  for (const Case &c : kCases)
    for (DType index : {DType::i64, DType::i32}) {
      const Array indices = random_integers(c.indices, 1, -extent(c), extent(c), index);
      expect_reference({"Gather", {{"axis", c.axis}}, {random_floats(c.table, 2), indices}}, 0);
      expect_reference({"Gather", {{"axis", c.axis}}, {random_integers(c.table, 3, 0, 99), indices}});
      expect_reference({"Gather", {{"axis", c.axis}}, {random_integers(c.table, 3, 0, 2, DType::boolean), indices}});
    }
}

TEST_P(GatherGradKernel, AddsInTheOrderOfTheIndicesWhateverTheTeam) {
  for (const Case &c : kCases)
    for (DType index : {DType::i64, DType::i32})
      expect_reference({"GatherGrad",
                        {{"axis", c.axis}, {"shape", c.table}},
                        {random_floats(gathered(c), 4), random_integers(c.indices, 5, -extent(c), extent(c), index)}});
}

const Case kElementCases[] = {
    {{7}, {5}, 0},
    {{7}, {50}, 0},
    {{131, 67}, {300, 67}, 0},
    {{131, 67}, {131, 9}, 1},
    {{131, 67}, {40, 9}, -1},
    {{5, 11, 13}, {4, 30, 12}, 1},
    {{5, 11, 13}, {5, 11, 1}, 2},
    {{4, 3}, {0, 3}, 0},
    {{4, 3}, {4, 0}, 1},
};

TEST_P(GatherElementsKernel, ReadsElementsOfAnyType) {
  for (const Case &c : kElementCases)
    for (DType index : {DType::i64, DType::i32}) {
      const Array indices = random_integers(c.indices, 6, -extent(c), extent(c), index);
      expect_reference({"GatherElements", {{"axis", c.axis}}, {random_floats(c.table, 7), indices}}, 0);
      expect_reference({"GatherElements", {{"axis", c.axis}}, {random_integers(c.table, 8, 0, 99), indices}});
    }
}

TEST_P(GatherElementsGradKernel, AddsInTheOrderOfTheIndicesWhateverTheTeam) {
  for (const Case &c : kElementCases)
    expect_reference({"GatherElementsGrad",
                      {{"axis", c.axis}, {"shape", c.table}},
                      {random_floats(c.indices, 9), random_integers(c.indices, 10, -extent(c), extent(c))}});
}

TEST_P(GatherKernel, IndicesOutsideTheTableAreAnErrorThatNamesThem) {
  for (std::int64_t index : {-8, 7, 700}) {
    const std::string text = "index " + std::to_string(index) + " is outside 0..6";
    const Array indices = Array::integers({0, 6, index, -7}), table = random_floats({7, 64}, 11);
    expect_error({"Gather", {}, {table, indices}}, text);
    expect_error({"GatherGrad", {{"shape", Shape{7, 64}}}, {random_floats({4, 64}, 12), indices}}, text);
    const Array column = Array::from_integers({DType::i64, {4, 1}}, indices.integers());
    expect_error({"GatherElements", {}, {table, column}}, text);
    expect_error({"GatherElementsGrad", {{"shape", Shape{7, 64}}}, {random_floats({4, 1}, 13), column}}, text);
  }
}

}  // namespace
}  // namespace protrain::test::gather_test
