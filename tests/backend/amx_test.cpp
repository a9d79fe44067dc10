// Compares products by AMX with sums in double. Skipped on processors without these instructions.
#include "backend/cpu/amx.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/shape.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace protrain::backend::cpu::amx_test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Operands of a product, with NaN around a and around the sums.
struct Operands {
  Operands(std::int64_t rows_, std::int64_t columns_, std::int64_t depth_)
      : rows(rows_),
        columns(columns_),
        depth(depth_),
        lda(depth_ + 5),
        ldc(divided_up(columns_, kAmxColumns) * 32 + 3) {
    std::mt19937 bits(11);
    const auto random = [&] { return arith::to_bf16(static_cast<float>(bits()) / 2147483648.0F - 1); };
    a.assign(static_cast<std::size_t>((rows + 2) * lda), arith::to_bf16(kNaN));
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t k = 0; k < depth; ++k) a[static_cast<std::size_t>(i * lda + k)] = random();
    b.assign(static_cast<std::size_t>(divided_up(columns, 64) * 64 * padded()), bf16{});
    for (std::int64_t k = 0; k < depth; ++k)
      for (std::int64_t j = 0; j < columns; ++j) b[place(k, j)] = random();
    sums.assign(static_cast<std::size_t>((rows + 2) * ldc), kNaN);
  }

  std::int64_t padded() const { return divided_up(depth, 32) * 32; }
  std::size_t place(std::int64_t k, std::int64_t j) const {  // of an element of b
    const std::int64_t block = j / 64 * padded() + k / 32 * 32;
    return static_cast<std::size_t>(block * 64 + k % 32 / 2 * 128 + j % 64 * 2 + k % 2);
  }
  double product(std::int64_t i, std::int64_t j) const {
    double sum = 0;
    for (std::int64_t k = 0; k < depth; ++k)
      sum += static_cast<double>(widened(a[static_cast<std::size_t>(i * lda + k)])) *
             static_cast<double>(widened(b[place(k, j)]));
    return sum;
  }
  AmxOperands operands() { return {{a.data(), lda}, b.data(), {sums.data(), ldc}}; }
  void multiply(bool accumulate) { multiply_with_amx(operands(), rows, columns, depth, accumulate); }

  std::int64_t rows, columns, depth, lda, ldc;
  std::vector<bf16> a, b;
  std::vector<float> sums;
};

void expect_product(const Operands &at, double times) {
  for (std::int64_t i = 0; i < at.rows + 2; ++i)
    for (std::int64_t j = 0; j < at.ldc; ++j) {
      const float sum = at.sums[static_cast<std::size_t>(i * at.ldc + j)];
      const bool is_written = i < at.rows && j < divided_up(at.columns, kAmxColumns) * kAmxColumns;
      if (i < at.rows && j < at.columns) {
        ASSERT_NEAR(sum, times * at.product(i, j), 1e-5 * std::sqrt(static_cast<double>(at.depth))) << i << ", " << j;
      } else if (!is_written) {
        ASSERT_TRUE(std::isnan(sum)) << i << ", " << j << " lies outside";
      }
    }
}

class Amx : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_amx()) GTEST_SKIP() << "this processor has no AMX";
  }
};

TEST_F(Amx, IsTheProductForEveryRestOfATile) {
  for (const std::int64_t rows : {1, 15, 16, 17, 32, 33, 70})
    for (const std::int64_t columns : {1, 16, 31, 33, 64, 130})
      for (const std::int64_t depth : {1, 2, 31, 32, 33, 95, 256}) {
        SCOPED_TRACE(testing::Message() << rows << " x " << depth << " x " << columns);
        Operands operands(rows, columns, depth);
        operands.multiply(false);
        expect_product(operands, 1);
        operands.multiply(true);
        expect_product(operands, 2);
        if (HasFatalFailure()) return;
      }
}

TEST_F(Amx, GivesTheSameBitsIfTheDepthIsCut) {
  Operands whole(40, 64, 192), parts(40, 64, 192);
  whole.multiply(false);
  AmxOperands at = parts.operands();
  multiply_with_amx(at, 40, 64, 128, false);
  at.a.at += 128;
  at.b += std::ptrdiff_t{128} * 64;
  multiply_with_amx(at, 40, 64, 64, true);
  EXPECT_EQ(std::memcmp(whole.sums.data(), parts.sums.data(), whole.sums.size() * sizeof(float)), 0);
}

#if defined(__x86_64__)
struct alignas(64) Tiles {
  std::uint8_t bytes[64] = {};
};
[[gnu::target("amx-tile")]] void set_tiles(const Tiles &tiles) {
  asm volatile("" : : "r"(&tiles) : "memory");
  if (tiles.bytes[0] == 0)
    _tile_release();
  else
    _tile_loadconfig(&tiles);
}
[[gnu::target("amx-tile")]] Tiles get_tiles() {
  Tiles tiles;
  _tile_storeconfig(&tiles);
  asm volatile("" : : "r"(&tiles) : "memory");
  return tiles;
}

TEST_F(Amx, LeavesTheTilesOfAnotherLibraryAsTheyWere) {
  Tiles used;
  used.bytes[0] = 1;   // the palette
  used.bytes[16] = 8;  // bytes in a row of tile 0
  used.bytes[48] = 3;  // rows of tile 0
  for (const Tiles &before : {used, Tiles{}}) {
    set_tiles(before);
    Operands operands(20, 20, 20);
    operands.multiply(false);
    EXPECT_EQ(std::memcmp(get_tiles().bytes, before.bytes, sizeof before.bytes), 0);
  }
  set_tiles({});
}
#endif

}  // namespace
}  // namespace protrain::backend::cpu::amx_test
