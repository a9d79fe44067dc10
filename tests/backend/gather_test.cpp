#include "backend/kernel_check.h"

namespace protrain::test {
namespace {

struct Case {
  Shape table, indices;
  std::int64_t axis;
};
const Case kCases[] = {
    {{7}, {}, 0},        {{7}, {5}, 0},           {{131, 67}, {3, 29}, 0},  {{131, 8}, {300}, 0},
    {{5, 131}, {40}, 1}, {{5, 11, 33}, {40}, -2}, {{5, 11, 3}, {2, 9}, -1}, {{4, 3}, {0}, 0},
    {{4, 0}, {5}, 0},    {{1, 256}, {9}, 0},      {{0, 3, 2}, {4}, 1},
};

Shape gathered(const Case &c) {
  const std::size_t axis = resolve_axis(c.axis, c.table.size(), "");
  Shape shape(c.table.begin(), c.table.begin() + static_cast<std::ptrdiff_t>(axis));
  shape.insert(shape.end(), c.indices.begin(), c.indices.end());
  shape.insert(shape.end(), c.table.begin() + static_cast<std::ptrdiff_t>(axis) + 1, c.table.end());
  return shape;
}
std::int64_t extent(const Case &c) { return c.table[resolve_axis(c.axis, c.table.size(), "")]; }

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

TEST(GatherKernel, IndicesOutsideTheTableAreAnError) {
  for (std::int64_t index : {-8, 7, 700})
    for (int threads : {1, 2, 3}) {
      const Array indices = Array::integers({0, 6, index, -7});
      const Array table = random_floats({7, 64}, 11);
      EXPECT_EQ(code_of_run({"Gather", {}, {table, indices}}, threads), Code::arg);
      EXPECT_EQ(code_of_run({"GatherGrad", {{"shape", Shape{7, 64}}}, {random_floats({4, 64}, 12), indices}}, threads),
                Code::arg);
      const Array column = Array::from_integers({DType::i64, {4, 1}}, indices.integers());
      EXPECT_EQ(code_of_run({"GatherElements", {}, {table, column}}, threads), Code::arg);
      EXPECT_EQ(
          code_of_run({"GatherElementsGrad", {{"shape", Shape{7, 64}}}, {random_floats({4, 1}, 13), column}}, threads),
          Code::arg);
    }
}

TEST(GatherKernel, TheErrorNamesTheIndexAndTheRange) {
  CpuBench bench({"Gather", {}, {random_floats({512, 3}, 14), Array::integers({700})}}, 1);
  try {
    bench.run();
    FAIL() << "nothing was thrown";
  } catch (const Error &error) {
    EXPECT_EQ(error.text, "index 700 is outside 0..511");
  }
}

}  // namespace
}  // namespace protrain::test
