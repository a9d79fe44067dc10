// Compares the emulated tensor core functions with plain loops over matrices. All elements of a matrix differ. So the
// results are right only if every element is in the lane that the PTX manual gives.
#include "backend/cuda/mma.h"

#include <gtest/gtest.h>

#include <vector>

namespace protrain::backend::cuda {
namespace {

constexpr int kRows = 16, kDepth = 16, kColumns = 8;  // sizes of the product

// Runs `thread` as a block of one warp, with threads in ascending or descending order.
template <typename Thread>
void run_warp(bool backwards, Thread thread) {
  emulation::run_backwards(backwards);
  emulation::run({1, kWarp, 4096}, thread);
  emulation::run_backwards(false);
}

bf16 number(int i) { return narrowed<bf16>(static_cast<float>(i)); }  // exact up to 256
Pair pair_of(int first, int second) { return static_cast<Pair>(number(second).bits) << 16 | number(first).bits; }

int a_at(int row, int k) { return row * kDepth + k; }
int b_at(int k, int column) { return 255 - k * kColumns - column; }
int c_at(int row, int column) { return 1000 * row + column; }

Quad a_of_lane() {
  const auto [g, t] = lane();
  Quad a;
  for (int i = 0; i < 4; ++i) {
    const int row = g + i % 2 * 8, k = 2 * t + i / 2 * 8;
    a.at[i] = pair_of(a_at(row, k), a_at(row, k + 1));
  }
  return a;
}
Pair b_of_lane(int half) {
  const auto [g, t] = lane();
  return pair_of(b_at(2 * t + half * 8, g), b_at(2 * t + half * 8 + 1, g));
}

TEST(TensorCores, AddTheProductOfEveryRowAndColumn) {
  for (bool backwards : {false, true}) {
    std::vector<float> found(kRows * kColumns);
    run_warp(backwards, [&] {
      const auto [g, t] = lane();
      Sums c;
      auto row = [&](int i) { return g + i / 2 * 8; };
      auto column = [&](int i) { return 2 * t + i % 2; };
      for (int i = 0; i < 4; ++i) c.at[i] = static_cast<float>(c_at(row(i), column(i)));
      mma(c, a_of_lane(), b_of_lane(0), b_of_lane(1));
      for (int i = 0; i < 4; ++i) found[static_cast<std::size_t>(row(i) * kColumns + column(i))] = c.at[i];
    });
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < kColumns; ++column) {
        int expected = c_at(row, column);
        for (int k = 0; k < kDepth; ++k) expected += a_at(row, k) * b_at(k, column);
        EXPECT_EQ(found[static_cast<std::size_t>(row * kColumns + column)], static_cast<float>(expected))
            << row << " " << column;
      }
  }
}

TEST(TensorCores, LoadMatricesAsTheyLieAndTurned) {
  for (bool backwards : {false, true})
    run_warp(backwards, [&] {
      auto *memory = shared_memory<bf16>();  // a (16, 16), b (16, 8), b transposed (8, 16)
      for (int i = lane_index(); i < 256; i += kWarp) memory[i] = number(a_at(i / 16, i % 16));
      bf16 *b = memory + 256, *b_turned = b + 128;
      for (int i = lane_index(); i < 128; i += kWarp) {
        b[i] = number(b_at(i / 8, i % 8));
        b_turned[i] = number(b_at(i % 16, i / 16));
      }
      __syncthreads();
      const int l = lane_index();
      const Quad left = load_matrices<false>(memory + l % 16 * 16 + l / 16 * 8);
      const Quad right = load_matrices<true>(b + l % 16 * 8);  // both halves are b
      const Quad turned = load_matrices<false>(b_turned + l % 8 * 16 + l / 8 % 2 * 8);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(left.at[i], a_of_lane().at[i]) << "lane " << l << ", pair " << i;
        EXPECT_EQ(right.at[i], b_of_lane(i % 2)) << "lane " << l << ", pair " << i;
        EXPECT_EQ(turned.at[i], b_of_lane(i % 2)) << "lane " << l << ", pair " << i;
      }
    });
}

TEST(TensorCores, TwoSumsSideBySideAreALeftOperand) {
  run_warp(false, [] {
    const auto [g, t] = lane();
    Sums left, right;
    for (int i = 0; i < 4; ++i) {
      const int row = g + i / 2 * 8, column = 2 * t + i % 2;
      left.at[i] = static_cast<float>(a_at(row, column));
      right.at[i] = static_cast<float>(a_at(row, column + 8));
    }
    const Quad quad = narrowed_quad(left, right);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(quad.at[i], a_of_lane().at[i]);
  });
}

TEST(TensorCores, CopiesAreThereOnceAllHaveWaited) {
  const std::vector<float> from(4 * kWarp, 3);
  for (bool backwards : {false, true})
    run_warp(backwards, [&] {
      auto *to = shared_memory<float>();
      const int l = lane_index();
      copy_async<16>(to + 4 * l, from.data() + 4 * l, l % 2 == 0);
      copy_async<8>(to + 4 * kWarp + 2 * l, from.data() + 2 * l, l % 2 == 0);
      wait_for_copies();
      __syncthreads();
      const int other = kWarp - 1 - l;
      for (int i = 0; i < 4; ++i) EXPECT_EQ(to[4 * other + i], other % 2 == 0 ? 3 : 0);
      for (int i = 0; i < 2; ++i) EXPECT_EQ(to[4 * kWarp + 2 * other + i], other % 2 == 0 ? 3 : 0);
    });
}

}  // namespace
}  // namespace protrain::backend::cuda
