#include "backend/kernel_check.h"

namespace protrain::test::gather_test {
namespace {

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
}  // namespace protrain::test::gather_test
