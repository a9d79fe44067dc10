// Compares MatMul's kernel with its reference.
#include "conformance/contest.h"
#include "cuda/products.h"

namespace protrain::test::matmul_test {
namespace {

PROTRAIN_FAMILY(MatMulKernel);

struct Case {
  Shape a, b;
};

enum class Added { nothing, bias, matrix };

Shape transposed(Shape shape, bool yes) {
  if (yes) std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
  return shape;
}

TEST_P(MatMulKernel, IsTheReferenceForAllTranspositionsBatchesAndBroadcasts) {
  const std::vector<Case> cases = {
      {{16, 24}, {24, 40}},          {{2, 3, 16, 8}, {8, 33}},   {{5, 7, 9}, {5, 9, 4}}, {{2, 3, 20, 8}, {3, 8, 10}},
      {{3, 1, 6, 8}, {1, 4, 8, 10}}, {{2, 33, 65}, {1, 65, 17}}, {{6, 8}, {2, 2, 8, 3}}, {{1, 1, 5, 4}, {1, 4, 6}}};
  unsigned seed = 0;
  for (const Case &c : cases)
    for (int form = 0; form < 4; ++form)
      for (double alpha : {1.0, -1.7})
        for (const Added added : {Added::nothing, Added::bias, Added::matrix}) {
          OneNode one{
              "MatMul",
              {{"trans_a", std::int64_t{form & 1}}, {"trans_b", std::int64_t{form >> 1}}, {"alpha", alpha}},
              {random_floats(transposed(c.a, form & 1), ++seed), random_floats(transposed(c.b, form >> 1), ++seed)}};
          if (added == Added::bias) one.inputs.push_back(random_floats({c.b.back()}, ++seed));
          if (added == Added::matrix) one.inputs.push_back(random_floats(reference(one)[0].shape(), ++seed));
          expect_reference(one, 5e-6);
        }
}

TEST_P(MatMulKernel, OfNothingIsZero) {
  expect_reference({"MatMul", {}, {random_floats({4, 0}, 1), random_floats({0, 3}, 2)}});
  expect_reference({"MatMul", {}, {random_floats({0, 4}, 1), random_floats({4, 3}, 2)}});
}

TEST_P(MatMulKernel, AddsAMatrixOfManyPanelsAndOneToAProductOfDepth0) {
  struct Sizes {
    std::int64_t m, k, n;
  };
  for (const Sizes &s : {Sizes{700, 0, 640}, Sizes{700, 16, 640}, Sizes{90, 1100, 70}, Sizes{70, 8200, 24}})
    expect_reference(
        {"MatMul", {}, {random_floats({s.m, s.k}, 1), random_floats({s.k, s.n}, 2), random_floats({s.m, s.n}, 3)}},
        1e-4);
}

TEST_P(MatMulKernel, IsTheReferenceAtAModelsSize) {
  expect_reference({"MatMul",
                    {{"trans_b", std::int64_t{1}}},
                    {random_floats({2, 96, 256}, 1), random_floats({512, 256}, 2), random_floats({512}, 3)}},
                   2e-5);
  expect_reference(
      {"MatMul", {{"trans_a", std::int64_t{1}}}, {random_floats({300, 256}, 1), random_floats({300, 128}, 2)}}, 2e-5);
}

TEST_P(MatMulKernel, IsTheReferenceForABatchOfManyThousands) {
  expect_reference({"MatMul", {}, {random_floats({70000, 2, 3}, 1), random_floats({70000, 3, 1}, 2)}}, 5e-6);
}

TEST_P(MatMulKernel, IsTheReferenceByEachOfItsAlgorithmsAndHasTheBitsOfEachTwice) {
  Machine &machine = *GetParam()->ways[0].machine;
  const OneNode one{"MatMul",
                    {{"trans_b", std::int64_t{1}}},
                    {random_floats({48, 64}, 1), random_floats({24, 64}, 2), random_floats({24}, 3)}};
  const Array right = reference(one)[0];
  const auto product = [&](int variant) {
    NodeBench bench(one, machine, 0, variant);
    bench.run();
    bench.expect_guards();
    return bench.results()[0];
  };
  for (int variant = 0; variant < NodeBench(one, machine).variant_count(); ++variant) {
    EXPECT_LE(largest_error(product(variant), right), 1e-5) << variant;
    EXPECT_TRUE(product(variant).same_as(product(variant))) << variant;
  }
}

// cuBLASLt refuses a fused bias if the inner dimension is odd. The bias is then added to the product's float32 sums,
// and each result is rounded once. So the results must be those of a fused bias.
TEST(CudaMatMul, AddsItsBiasApartWhereTheLibraryCannot) {
  const auto product = [](std::size_t depth) {
    std::vector<double> x(6 * depth), w(depth * 4);  // values beyond a depth of 8 are 0
    for (std::size_t i = 0; i < 6; ++i)
      for (std::size_t l = 0; l < 8; ++l) x[i * depth + l] = std::sin(0.3 * double(8 * i + l + 1));
    for (std::size_t l = 0; l < 8; ++l)
      for (std::size_t j = 0; j < 4; ++j) w[l * 4 + j] = std::sin(0.7 * double(4 * l + j + 1));
    const auto narrow = [](const Shape &shape, const std::vector<double> &values) {
      return Array::from_doubles({DType::bf16, shape}, values);
    };
    const auto deep = static_cast<std::int64_t>(depth);
    const OneNode one{"MatMul", {}, {narrow({6, deep}, x), narrow({deep, 4}, w), narrow({4}, {0.1, 0.2, 0.3, 0.4})}};
    NodeBench bench(one, *contenders()[1].ways[0].machine);
    EXPECT_EQ(emulation::last_product().bias, depth % 2 == 0);
    EXPECT_EQ(emulation::last_product().accumulate, depth % 2 != 0);
    bench.run();
    bench.expect_guards();
    return bench.results()[0];
  };
  EXPECT_TRUE(product(9).same_as(product(8)));
}

TEST(CudaMatMul, PromisesAllTheAlignmentThatItsOperandsHave) {
  const auto promised = [](const Shape &a, const Shape &b) {
    const NodeBench bench({"MatMul", {}, {random_floats(a, 1), random_floats(b, 2)}}, *contenders()[1].ways[0].machine);
    return emulation::last_product().alignment;
  };
  EXPECT_EQ(promised({5, 7}, {7, 9}), 64U);
  EXPECT_EQ(promised({2, 5, 7}, {7, 9}), 64U);
  EXPECT_EQ(promised({3, 4, 8}, {3, 8, 16}), 64U);
  EXPECT_EQ(promised({3, 4, 8}, {1, 8, 2}), 32U);  // the results of a batch are 8 floats apart
  EXPECT_EQ(promised({3, 5, 7}, {3, 7, 16}), 4U);
}

}  // namespace
}  // namespace protrain::test::matmul_test
