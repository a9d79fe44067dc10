// Compares small products with sums in double. Processors with AMX have code of their own for some of these shapes.
#include "backend/cpu/tile_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "backend/cpu/floats.h"

namespace protrain::backend::cpu::tile_product_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <typename T>
std::vector<T> random_matrix(std::int64_t rows, std::int64_t columns, unsigned seed) {
  std::mt19937 bits(seed);
  std::vector<float> floats(static_cast<std::size_t>(rows * columns));
  for (float &f : floats) f = static_cast<float>(bits()) / 2147483648.0F - 1;
  std::vector<T> matrix(floats.size());
  narrow(floats.data(), matrix.data(), rows * columns);
  return matrix;
}

// Expects c to be `times` times the product, and the element behind c to be as it was.
template <typename T>
void expect_product(const GemmShape &s, const std::vector<T> &a, const std::vector<T> &b, const std::vector<float> &c,
                    double times) {
  const auto element = [](const std::vector<T> &of, std::int64_t at) {
    return static_cast<double>(widened(of[static_cast<std::size_t>(at)]));
  };
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::int64_t k = 0; k < s.k; ++k) sum += element(a, i * s.k + k) * element(b, k * s.n + j);
      ASSERT_NEAR(c[static_cast<std::size_t>(i * s.n + j)], times * sum, 1e-4) << i << ", " << j;
    }
  EXPECT_TRUE(std::isnan(c.back()));
}

template <typename T>
void check_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  SCOPED_TRACE(testing::Message() << m << " x " << k << " x " << n);
  const std::vector<T> a = random_matrix<T>(m, k, 1), b = random_matrix<T>(k, n, 2);
  std::vector<float> c(static_cast<std::size_t>(m * n + 1), kNaN);
  for (const bool accumulate : {false, true}) {
    const GemmShape shape{.m = m, .n = n, .k = k, .accumulate = accumulate, .in = kDTypeOf<T>};
    TileProduct product(shape, 1);
    // Scratch holds NaN, so a product that reads what it did not write shows it.
    std::vector<float> scratch(product.scratch_bytes() / sizeof(float) + 16, kNaN);
    void *aligned = scratch.data();
    std::size_t space = scratch.size() * sizeof(float);
    product.run(0, {a.data(), b.data(), c.data()}, std::align(64, product.scratch_bytes(), aligned, space));
    expect_product(shape, a, b, c, accumulate ? 2 : 1);
  }
}

TEST(TileProduct, IsTheProductForWholeAndPartialTiles) {
  for (const std::int64_t m : {1, 17, 64})
    for (const std::int64_t n : {1, 32, 64, 80, 96})
      for (const std::int64_t k : {1, 31, 64, 96}) {
        check_product<float>(m, n, k);
        check_product<bf16>(m, n, k);
        if (HasFatalFailure()) return;
      }
}

}  // namespace
}  // namespace protrain::backend::cpu::tile_product_test
