// Product and Gemm against sums in double; bits; what oneDNN chose.
#include "backend/cpu/gemm.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/memory.h"

namespace protrain::backend {
namespace {

struct Operands {
  explicit Operands(const GemmShape &s, std::size_t shift = 0)
      : block(static_cast<std::uint64_t>(s.m * s.k + s.k * s.n + s.m * s.n + s.n) * 4 + 1024, "operands") {
    auto *at = reinterpret_cast<float *>(block.data() + shift);
    std::mt19937 bits(7);
    auto take = [&](std::int64_t count) {
      float *start = at;
      for (std::int64_t i = 0; i < count; ++i) start[i] = static_cast<float>(bits()) / 2147483648.0F - 1;
      at += (count + 15) / 16 * 16;
      return start;
    };
    a = take(s.m * s.k), b = take(s.k * s.n), bias = take(s.n), c = take(s.m * s.n);
  }
  Block block;
  float *a, *b, *bias, *c;
};

std::vector<float> run(const GemmShape &shape, int threads, std::size_t shift = 0) {
  Operands operands(shape, shift);
  Team team(threads, "gemm");
  team.enter([&] {
    team.run([](Member &) { omp_set_num_threads(1); });
    Gemm gemm(shape, threads);
    Block scratch(gemm.scratch_bytes() * static_cast<std::uint64_t>(threads), "scratch");
    team.run([&](Member &member) {
      gemm.run(member, {operands.a, operands.b, operands.c, operands.bias},
               scratch.data() + static_cast<std::uint64_t>(member.index) * gemm.scratch_bytes());
    });
  });
  return {operands.c, operands.c + shape.m * shape.n};
}

std::vector<double> expected(const GemmShape &s) {
  const Operands o(s);
  std::vector<double> c;
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < s.k; ++p)
        sum += static_cast<double>(s.trans_a ? o.a[p * s.m + i] : o.a[i * s.k + p]) *
               static_cast<double>(s.trans_b ? o.b[j * s.k + p] : o.b[p * s.n + j]);
      c.push_back(static_cast<double>(s.alpha) * sum + (s.accumulate ? static_cast<double>(o.c[i * s.n + j]) : 0) +
                  (s.bias ? static_cast<double>(o.bias[j]) : 0));
    }
  return c;
}

void expect_product(const GemmShape &shape) {
  const std::vector<double> right = expected(shape);
  for (int threads : {1, 2, 3, 4}) {
    const std::vector<float> c = run(shape, threads);
    double worst = 0;
    for (std::size_t i = 0; i < c.size(); ++i) worst = std::max(worst, std::abs(static_cast<double>(c[i]) - right[i]));
    EXPECT_LE(worst, 4e-7 * static_cast<double>(shape.k + 10))
        << shape.m << " x " << shape.k << " x " << shape.n << " on " << threads << " threads, transposed "
        << shape.trans_a << shape.trans_b;
  }
}

const std::vector<GemmShape> kShapes = {{64, 48, 32},  {1, 7, 5},    {5, 1, 3},    {33, 17, 70},  {3, 200, 129},
                                        {130, 50, 64}, {200, 96, 8}, {16, 16, 16}, {300, 10, 400}};

TEST(Gemm, IsTheProductInEveryOrientationAndForm) {
  for (GemmShape shape : kShapes)
    for (int form = 0; form < 16; ++form) {
      shape.trans_a = form & 1, shape.trans_b = form & 2;
      shape.accumulate = (form >> 2) == 1, shape.bias = (form >> 2) == 2, shape.alpha = (form >> 2) == 3 ? 0.5F : 1.0F;
      expect_product(shape);
    }
}

TEST(Gemm, OfTallTransposedPanelsIsTheProduct) {
  expect_product({.m = 700, .n = 40, .k = 1500, .trans_a = true, .accumulate = true});
}

TEST(Gemm, OverNothingIsTheBiasOrWhatWasThere) {
  for (const GemmShape &shape :
       {GemmShape{.m = 20, .n = 9, .k = 0}, GemmShape{.m = 20, .n = 9, .k = 0, .bias = true},
        GemmShape{.m = 20, .n = 9, .k = 0, .accumulate = true}, GemmShape{.m = 0, .n = 4, .k = 3}})
    expect_product(shape);
}

TEST(Gemm, BitsDependNeitherOnTheRunNorOnTheAddress) {
  for (int orientation = 0; orientation < 4; ++orientation) {
    const GemmShape shape{.m = 200, .n = 300, .k = 500, .trans_a = (orientation & 1) != 0, .trans_b = orientation >= 2};
    const std::vector<float> first = run(shape, 2);
    for (std::size_t shift : {0, 64, 128, 192, 448, 512})
      EXPECT_EQ(0, std::memcmp(first.data(), run(shape, 2, shift).data(), first.size() * 4)) << shift;
  }
}

TEST(Gemm, AlphaOfOneChangesNoBit) {
  const GemmShape shape{.m = 64, .n = 64, .k = 64};
  GemmShape scaled = shape;
  scaled.alpha = 2;
  const std::vector<float> plain = run(shape, 2), twice = run(scaled, 2);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(2 * plain[i], twice[i]);
}

TEST(Gemm, NeverMeetsTheImplementationThatAllocates) {
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512bw");
#else
  const bool avx512 = false;
#endif
  if (!avx512) GTEST_SKIP() << "without AVX-512 oneDNN has nothing else";
  omp_set_num_threads(1);
  for (GemmShape shape : kShapes)
    for (int form = 0; form < 8; ++form) {
      shape.trans_b = form & 1, shape.accumulate = form & 2, shape.alpha = form & 4 ? 0.5F : 1.0F;
      EXPECT_EQ(Product(shape, 1).implementation(), "brg:avx512_core") << shape.m << " " << shape.n << " " << shape.k;
    }
}

}  // namespace
}  // namespace protrain::backend
