// Compares Product, Gemm, WidenedProduct, TiledProduct and PackedProduct with sums in double. Checks that repeated runs
// and other addresses give the same bits. Checks which implementation oneDNN chooses.
#include "backend/cpu/gemm.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "arith/f16.h"
#include "backend/cpu/packed_product.h"
#include "backend/cpu/tile.h"
#include "backend/cpu/tiled_product.h"
#include "backend/cpu/widened_product.h"
#include "base/memory.h"
#include "base/shape.h"
#include "errors.h"

namespace protrain::backend::cpu::gemm_test {
namespace {

double value(const void *at, DType type, std::int64_t i) {
  if (type == DType::bf16) return static_cast<double>(arith::widened(static_cast<const arith::bf16 *>(at)[i]));
  if (type == DType::f16) return static_cast<double>(arith::widened(static_cast<const arith::f16 *>(at)[i]));
  return static_cast<double>(static_cast<const float *>(at)[i]);
}

struct Operands {
  explicit Operands(const GemmShape &s, std::size_t shift = 0)
      : block(static_cast<std::uint64_t>(s.m * s.k + s.k * s.n + 2 * s.m * s.n + s.n) * 4 + 1024, "operands") {
    std::byte *at = block.data() + shift;
    std::mt19937 bits(7);
    auto take = [&](std::int64_t count, DType type) {
      void *start = at;
      for (std::int64_t i = 0; i < count; ++i) {
        const float x = static_cast<float>(bits()) / 2147483648.0F - 1;
        if (type == DType::bf16)
          static_cast<arith::bf16 *>(start)[i] = arith::to_bf16(x);
        else if (type == DType::f16)
          static_cast<arith::f16 *>(start)[i] = arith::to_f16(x);
        else
          static_cast<float *>(start)[i] = x;
      }
      at += round_up(static_cast<std::uint64_t>(count) * size_of(type), 64);
      return start;
    };
    a = take(s.m * s.k, s.in), b = take(s.k * s.n, s.in), bias = take(s.n, s.in), c = take(s.m * s.n, s.out);
    addend = take(s.m * s.n, s.out);
  }
  GemmOperands all() const { return {a, b, c, bias, addend}; }

  MemoryBlock block;
  void *a, *b, *bias, *c, *addend;
};

std::vector<double> values(const void *c, const GemmShape &s) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < s.m * s.n; ++i) all.push_back(value(c, s.out, i));
  return all;
}

std::vector<double> run(const GemmShape &shape, int threads, std::size_t shift = 0) {
  Operands operands(shape, shift);
  Team team(threads, "gemm");
  team.enter([&] {
    team.run([](Member &) { omp_set_num_threads(1); });
    Gemm gemm(shape, threads);
    MemoryBlock scratch(gemm.scratch_bytes() * static_cast<std::uint64_t>(threads), "scratch");
    team.run([&](Member &member) {
      gemm.run(member, operands.all(),
               scratch.data() + static_cast<std::uint64_t>(member.index) * gemm.scratch_bytes());
    });
  });
  return values(operands.c, shape);
}

// Returns the elements of a matrix (rows, columns), row by row. If `transposed`, the transpose of the matrix lies at
// `at`.
std::vector<double> laid_out(const void *at, DType type, std::int64_t rows, std::int64_t columns, bool transposed) {
  std::vector<double> all;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      all.push_back(value(at, type, transposed ? j * rows + i : i * columns + j));
  return all;
}

// Returns the c (m, n) that is expected, with sums in double. Goes along the rows of b, because a loop along the
// columns of b would be several times slower.
std::vector<double> expected(const GemmShape &s) {
  const Operands o(s);
  const std::vector<double> a = laid_out(o.a, s.in, s.m, s.k, s.trans_a), b = laid_out(o.b, s.in, s.k, s.n, s.trans_b);
  std::vector<double> c, sums(static_cast<std::size_t>(s.n));
  for (std::int64_t i = 0; i < s.m; ++i) {
    std::ranges::fill(sums, 0);
    for (std::int64_t p = 0; p < s.k; ++p) {
      const double factor = a[static_cast<std::size_t>(i * s.k + p)];
      const double *row = b.data() + p * s.n;
      for (double &sum : sums) sum += factor * *row++;
    }
    for (std::int64_t j = 0; j < s.n; ++j)
      c.push_back(static_cast<double>(s.alpha) * sums[static_cast<std::size_t>(j)] +
                  (s.accumulate ? value(o.c, s.out, i * s.n + j) : 0) + (s.bias ? value(o.bias, s.in, j) : 0) +
                  (s.addend ? value(o.addend, s.out, i * s.n + j) : 0));
  }
  return c;
}

// Expects c to equal `right`, except for the rounding of float32 sums. Results of a 16-bit type are rounded once more,
// so they may also be off by half the distance between neighbouring numbers.
void expect_close(const std::vector<double> &c, const std::vector<double> &right, const GemmShape &shape) {
  double worst = 0;
  for (std::size_t i = 0; i < c.size(); ++i) {
    const int bits = shape.out == DType::bf16 ? 8 : 11;
    const double half_step = shape.out == DType::f32 ? 0 : std::ldexp(1, std::max(std::ilogb(right[i]), -14) - bits);
    worst = std::max(worst, std::abs(c[i] - right[i]) - half_step);
  }
  EXPECT_LE(worst, 4e-7 * static_cast<double>(shape.k + 10))
      << shape.m << " x " << shape.k << " x " << shape.n << ", transposed " << shape.trans_a << shape.trans_b << ", "
      << name_of(shape.in) << " to " << name_of(shape.out) << ", alpha " << shape.alpha;
}

void expect_product(const GemmShape &shape) {
  const std::vector<double> right = expected(shape);
  for (int threads : {1, 3}) {
    SCOPED_TRACE(threads);
    expect_close(run(shape, threads), right, shape);
  }
}

struct Types {
  DType in, out;
};
constexpr Types kTypes[] = {{DType::f32, DType::f32},
                            {DType::bf16, DType::bf16},
                            {DType::bf16, DType::f32},
                            {DType::f16, DType::f16},
                            {DType::f16, DType::f32}};

// Returns the shape in all variants that Products take: every pair of types, each operand transposed or not, and five
// kinds of result (plain, added to c, with a bias, scaled by alpha, with both bias and alpha).
std::vector<GemmShape> forms(const GemmShape &shape) {
  std::vector<GemmShape> all;
  for (const auto &[in, out] : kTypes)
    for (int form = 0; form < 20; ++form) {
      GemmShape s = shape;
      s.in = in, s.out = out, s.trans_a = form & 1, s.trans_b = form & 2;
      s.accumulate = (form >> 2) == 1, s.bias = (form >> 2) == 2 || (form >> 2) == 4;
      s.alpha = (form >> 2) >= 3 ? 0.5F : 1.0F;
      all.push_back(s);
    }
  return all;
}

const std::vector<GemmShape> kShapes = {{64, 48, 32},  {1, 7, 5},    {5, 1, 3},    {33, 17, 70},  {3, 200, 129},
                                        {130, 50, 64}, {200, 96, 8}, {16, 16, 16}, {300, 10, 400}};

TEST(Gemm, IsTheProductInEveryTypeOrientationAndForm) {
  for (const GemmShape &shape : kShapes)
    for (const GemmShape &form : forms(shape)) expect_product(form);
}

TEST(Gemm, AddsTheProductToAMatrix) {
  for (const GemmShape &shape : {GemmShape{.m = 37, .n = 300, .k = 16}, GemmShape{.m = 70, .n = 260, .k = 70},
                                 GemmShape{.m = 5, .n = 7, .k = 9}, GemmShape{.m = 17, .n = 260, .k = 2100}})
    for (GemmShape form : forms(shape)) {
      if (form.bias || form.accumulate) continue;
      form.addend = true;
      expect_product(form);
    }
}

TEST(Gemm, OfDeepFactorsIsTheProduct) {
  for (const GemmShape &shape : {GemmShape{.m = 37, .n = 21, .k = 1500}, GemmShape{.m = 19, .n = 6, .k = 8300}})
    for (const GemmShape &form : forms(shape)) expect_product(form);
}

TEST(Gemm, OfDeepFactorsIsTheProductInManyPanelsOfRows) {
  for (const auto &[in, out] : kTypes)
    for (const bool transposed : {false, true})
      expect_product({.m = 1300, .n = 8, .k = 8300, .trans_a = transposed, .accumulate = true, .in = in, .out = out});
}

// b is wide here. Processors without AVX-512 compute such products in tiles.
TEST(Gemm, OfWideFactorsIsTheProduct) {
  for (const std::int64_t columns : {384, 1100})
    for (const GemmShape &form : forms({.m = 37, .n = columns, .k = 300})) expect_product(form);
}

TEST(Gemm, OfTallTransposedPanelsIsTheProduct) {
  for (const auto &[in, out] : kTypes)
    expect_product({.m = 700, .n = 40, .k = 1500, .trans_a = true, .accumulate = true, .in = in, .out = out});
}

TEST(Gemm, OverNothingIsTheBiasOrWhatWasThere) {
  for (const auto &[in, out] : kTypes)
    for (GemmShape shape :
         {GemmShape{.m = 20, .n = 9, .k = 0}, GemmShape{.m = 20, .n = 9, .k = 0, .bias = true},
          GemmShape{.m = 20, .n = 9, .k = 0, .accumulate = true}, GemmShape{.m = 0, .n = 4, .k = 3}}) {
      shape.in = in, shape.out = out;
      expect_product(shape);
    }
}

TEST(Gemm, OfMorePanelsThanMemoryListsIsRefused) {
  const GemmShape shape{.m = std::int64_t{1} << 40, .n = 8, .k = 8300, .trans_a = true};
  EXPECT_EQ(test::error_of([&] { Gemm(shape, 2); }).code, Code::limit);
}

TEST(Gemm, BitsDependNeitherOnTheRunNorOnTheAddress) {
  for (DType type : {DType::f32, DType::bf16, DType::f16})
    for (int orientation = 0; orientation < 4; ++orientation) {
      const GemmShape shape{.m = 200,
                            .n = 300,
                            .k = 500,
                            .trans_a = (orientation & 1) != 0,
                            .trans_b = orientation >= 2,
                            .in = type,
                            .out = type};
      const std::vector<double> first = run(shape, 2);
      for (std::size_t shift : {0, 64, 128, 192, 448, 512}) EXPECT_EQ(first, run(shape, 2, shift)) << shift;
    }
}

TEST(Gemm, AlphaOfTwoDoublesEveryElement) {
  const GemmShape shape{.m = 64, .n = 64, .k = 64};
  GemmShape scaled = shape;
  scaled.alpha = 2;
  const std::vector<double> plain = run(shape, 2), twice = run(scaled, 2);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(2 * plain[i], twice[i]);
}

// True for oneDNN's own matrix kernels that use AVX-512. Versions of oneDNN call them "brg:avx512_core" or
// "brg_matmul:avx512_core", with more behind it that depends on the processor.
bool is_brgemm_of_avx512(const std::string &implementation) {
  return implementation.starts_with("brg") && implementation.find(":avx512_core") != std::string::npos;
}

// True if the processor has AVX-512 and oneDNN may use it.
bool has_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bw") && std::getenv("ONEDNN_MAX_CPU_ISA") == nullptr;
#else
  return false;
#endif
}
bool has_bf16() {
#if defined(__x86_64__)
  return has_avx512() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

TEST(Gemm, NeverMeetsTheImplementationThatAllocates) {
  if (!has_avx512()) GTEST_SKIP() << "without AVX-512 oneDNN has nothing else";
  omp_set_num_threads(1);
  for (const GemmShape &shape : kShapes)
    for (const GemmShape &form : forms(shape)) {
      if (form.trans_a) continue;  // Gemm packs a transposed a into panels
      const bool multiplies = form.in == DType::f32 || (has_bf16() && form.in == DType::bf16);
      const std::string implementation = Product(form, 1).implementation();
      EXPECT_TRUE(multiplies ? is_brgemm_of_avx512(implementation) : implementation == "widened")
          << implementation << " for " << shape.m << " " << shape.n << " " << shape.k;
    }
}

TEST(WidenedProduct, IsTheProductInEveryForm) {
  omp_set_num_threads(1);
  std::vector<GemmShape> shapes = kShapes;
  shapes.push_back({.m = 257, .n = 259, .k = 521});  // several panels along each axis, the last one partly filled
  for (const GemmShape &shape : shapes)
    for (const GemmShape &form : forms(shape)) {
      if (form.in == DType::f32) continue;
      WidenedProduct product(form, 1);
      MemoryBlock scratch(product.scratch_bytes(), "scratch");
      std::memset(scratch.data(), 0xFF, scratch.size());
      const Operands operands(form);
      product.run(0, {operands.a, operands.b, operands.c, operands.bias}, scratch.data());
      expect_close(values(operands.c, form), expected(form), form);
    }
}

TEST(WidenedProduct, TakesNoMoreScratchForMoreOfAnything) {
  const GemmShape shape{.m = 512, .n = 512, .k = 512, .in = DType::bf16, .out = DType::bf16};
  GemmShape larger = shape;
  larger.m *= 64, larger.n *= 64, larger.k *= 64;
  EXPECT_EQ(WidenedProduct(larger, 1).scratch_bytes(), WidenedProduct(shape, 1).scratch_bytes());
}

// Runs the members of a team one after the other.
template <typename TheProduct>
std::vector<double> run_cells(const GemmShape &shape, const Operands &operands, int team_size) {
  TheProduct product(shape, team_size);
  MemoryBlock scratch(product.scratch_bytes(), "scratch");
  for (int i = 0; i < team_size; ++i) {
    std::memset(scratch.data(), 0xFF, scratch.size());
    product.run(Member(i, team_size, nullptr), operands.all(), scratch.data());
  }
  return values(operands.c, shape);
}

TEST(TiledProduct, IsTheProductInEveryForm) {
  if (!has_tiles()) GTEST_SKIP() << "needs AVX2";
  std::vector<GemmShape> shapes = kShapes;
  shapes.push_back({.m = 501, .n = 50, .k = 600});  // several blocks of rows and of depth, the last ones partly filled
  shapes.push_back({.m = 21, .n = 1100, .k = 70});  // several groups of columns, the last one partly filled
  shapes.push_back({.m = 1100, .n = 30, .k = 40});  // several strips of a narrow c
  shapes.push_back({.m = 8, .n = 48, .k = 256});    // full tiles only
  for (const GemmShape &shape : shapes)
    for (const GemmShape &form : forms(shape)) {
      const Operands operands(form);
      expect_close(run_cells<TiledProduct>(form, operands, 1), expected(form), form);
    }
}

TEST(TiledProduct, OfManyRowsAndColumnsIsTheProduct) {
  if (!has_tiles()) GTEST_SKIP() << "needs AVX2";
  const GemmShape shape{.m = 1100, .n = 1100, .k = 70, .accumulate = true, .in = DType::bf16, .out = DType::bf16};
  expect_close(run_cells<TiledProduct>(shape, Operands(shape), 1), expected(shape), shape);
}

TEST(TiledProduct, HasTheSameBitsForEveryTeam) {
  if (!has_tiles()) GTEST_SKIP() << "needs AVX2";
  for (const auto &[in, out] : kTypes)
    for (const bool transposed : {false, true}) {
      GemmShape shape{.m = 77, .n = 500, .k = 300, .trans_a = transposed, .trans_b = transposed, .in = in, .out = out};
      (transposed ? shape.accumulate : shape.bias) = true;
      const std::vector<double> c = run_cells<TiledProduct>(shape, Operands(shape), 1);
      for (const int team_size : {2, 3, 12, 37, 64})
        EXPECT_EQ(run_cells<TiledProduct>(shape, Operands(shape), team_size), c) << team_size;
    }
}

TEST(TiledProduct, GivesAColumnTheSameBitsWithOtherColumnsAndWithout) {
  if (!has_tiles()) GTEST_SKIP() << "needs AVX2";
  const GemmShape all{.m = 9, .n = 1100, .k = 300, .trans_b = true};
  GemmShape few = all;
  few.n = 30;
  const Operands operands(all);
  const std::vector<double> c = run_cells<TiledProduct>(all, operands, 1);
  for (const std::int64_t first : {0, 5, 1070}) {
    Operands own(few);
    own.a = operands.a, own.b = static_cast<float *>(operands.b) + first * all.k;
    const std::vector<double> columns = run_cells<TiledProduct>(few, own, 1);
    for (std::int64_t i = 0; i < all.m; ++i)
      EXPECT_TRUE(
          std::equal(columns.begin() + i * few.n, columns.begin() + (i + 1) * few.n, c.begin() + i * all.n + first));
  }
}

TEST(TiledProduct, GivesARowTheSameBitsWithOtherRowsAndWithout) {
  if (!has_tiles()) GTEST_SKIP() << "needs AVX2";
  for (const bool transposed : {false, true}) {
    const GemmShape all{.m = 501, .n = 50, .k = 600, .trans_b = transposed, .bias = true};
    const Operands operands(all);
    const std::vector<double> c = run_cells<TiledProduct>(all, operands, 1);
    for (const std::int64_t first : {0, 3, 490}) {
      GemmShape few = all;
      few.m = 7;
      Operands own(few);
      own.a = static_cast<float *>(operands.a) + first * all.k, own.b = operands.b, own.bias = operands.bias;
      const std::vector<double> rows = run_cells<TiledProduct>(few, own, 1);
      EXPECT_TRUE(std::equal(rows.begin(), rows.end(), c.begin() + first * all.n)) << first;
    }
  }
}

// Returns the forms of the shape that PackedProduct computes on this processor.
std::vector<GemmShape> packed_forms(const GemmShape &shape) {
  omp_set_num_threads(1);
  std::vector<GemmShape> all = forms(shape);
  std::erase_if(all, [](const GemmShape &form) {
    return !PackedProduct::takes(form.in) || (form.in == DType::bf16 && form.trans_b && form.k % 2 != 0);
  });
  return all;
}

void expect_packed(const GemmShape &shape, int team_size) {
  SCOPED_TRACE(team_size);
  const Operands operands(shape);
  expect_close(run_cells<PackedProduct>(shape, operands, team_size), expected(shape), shape);
}

TEST(PackedProduct, IsTheProductInEveryForm) {
  std::vector<GemmShape> shapes = kShapes;
  shapes.push_back({.m = 300, .n = 300, .k = 258});  // several panels and blocks, the last ones partly filled
  for (const GemmShape &shape : shapes)
    for (const GemmShape &form : packed_forms(shape))
      for (const int team_size : {1, 4}) expect_packed(form, team_size);
}

TEST(PackedProduct, OfManyGroupsAndStripsIsTheProduct) {
  for (const GemmShape &form : packed_forms({.m = 530, .n = 150, .k = 4096}))
    if (form.alpha == 1 && form.in == form.out) expect_packed(form, 1);
}

TEST(PackedProduct, OfACutDepthIsTheProduct) {
  for (const GemmShape &form : packed_forms({.m = 19, .n = 70, .k = 33000}))
    if (form.alpha == 1) expect_packed(form, 2);
  for (const GemmShape &shape : {GemmShape{.m = 1300, .n = 30, .k = 8300}, GemmShape{.m = 30, .n = 1300, .k = 8300}})
    for (GemmShape form : packed_forms(shape))  // several strips, or several groups
      if (form.trans_a && form.accumulate && !form.trans_b) expect_packed(form, 1);
}

TEST(PackedProduct, OfAHeldFactorIsTheProduct) {
  for (const GemmShape &form : packed_forms({.m = 600, .n = 200, .k = 300}))
    if (form.trans_a) expect_packed(form, 1);
}

TEST(PackedProduct, GivesARowOfAFullPanelTheSameBitsForEveryNumberOfRows) {
  for (const auto &[in, out] : kTypes) {
    GemmShape all{.m = 6 * 32, .n = 700, .k = 300, .bias = true, .in = in, .out = out, .panel_rows = 32};
    if (!PackedProduct::takes(in)) continue;
    const Operands operands(all);
    for (const int team_size : {1, 2, 12}) {
      const std::vector<double> c = run_cells<PackedProduct>(all, operands, team_size);
      for (const std::int64_t panels : {1, 2, 5}) {
        GemmShape few = all;
        few.m = panels * few.panel_rows;
        Operands own(few);
        own.a = operands.a, own.b = operands.b, own.bias = operands.bias;
        const std::vector<double> rows = run_cells<PackedProduct>(few, own, team_size);
        EXPECT_TRUE(std::equal(rows.begin(), rows.end(), c.begin()))
            << panels << " panels, " << team_size << " members";
      }
    }
  }
}

TEST(PackedProduct, IsTakenOnlyWhereTheImplementationThatAllocatesIsNot) {
  if (!has_avx512()) GTEST_SKIP() << "without AVX-512 oneDNN takes no packed factor";
  EXPECT_TRUE(Product::takes_packed(DType::f32));
  for (const GemmShape &shape : kShapes)
    for (GemmShape form : packed_forms(shape)) {
      if (form.trans_a || form.trans_b || !Product::takes_packed(form.in)) continue;
      form.packed_b = true;
      const std::string implementation = Product(form, 1).implementation();
      EXPECT_TRUE(is_brgemm_of_avx512(implementation)) << implementation;
    }
}

}  // namespace
}  // namespace protrain::backend::cpu::gemm_test
