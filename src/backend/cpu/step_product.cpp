#include "backend/cpu/step_product.h"

#include <algorithm>

#include "backend/cpu/tile.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kColumns = kTileColumns;  // columns of a panel; the last panel may have fewer

// Cuts a matrix into panels of at most kColumns columns. Calls act(first column, columns) for each panel.
template <typename Act>
void each_panel(std::int64_t columns, Act act) {
  for (std::int64_t first = 0; first < columns; first += kColumns) act(first, std::min(kColumns, columns - first));
}

#ifdef PROTRAIN_TILES
template <int kVectors>
void multiply_panel(const GemmShape &s, const float *a, const float *panel, float *c) {
  const TileStrides strides{s.k, kVectors * kTileVector, s.n};
  multiply_rows<kVectors>(s.m, s.k, {a, panel, c}, strides, s.accumulate);
}

void multiply(const GemmShape &s, const float *a, const float *laid, float *c) {
  each_panel(s.n, [&](std::int64_t first, std::int64_t columns) {
    const float *panel = laid + first * s.k;
    if (columns == kColumns) return multiply_panel<3>(s, a, panel, c + first);
    columns == 2 * kTileVector ? multiply_panel<2>(s, a, panel, c + first) : multiply_panel<1>(s, a, panel, c + first);
  });
}
#else
void multiply(const GemmShape &, const float *, const float *, float *) {}
#endif

// Returns true if b should be packed into panels once. This is the case if oneDNN would pack b again in every product,
// and if multiply() can compute the product from panels.
bool lays_out(const GemmShape &s) {
  const bool fits = s.in == DType::f32 && s.out == DType::f32 && s.n % kTileVector == 0 && !s.trans_a && !s.trans_b &&
                    !s.bias && s.alpha == 1 && s.m > 0 && s.n > 0 && s.k > 0;
  if (!fits || !has_tiles()) return false;
  return Product(s, 1).implementation() == "gemm:jit";
}
}  // namespace

StepProduct::StepProduct(const GemmShape &shape) : shape_(shape), gemm_(shape, 1), is_laid_out_(lays_out(shape)) {}

void StepProduct::lay_out(const float *b, float *to) const {
  if (!is_laid_out_) return;
  each_panel(shape_.n, [&](std::int64_t first, std::int64_t columns) {
    for (std::int64_t i = 0; i < shape_.k; ++i)
      std::copy_n(b + i * shape_.n + first, columns, to + first * shape_.k + i * columns);
  });
}

void StepProduct::run(const GemmOperands &operands, const float *laid, void *scratch) {
  if (is_laid_out_)
    return multiply(shape_, static_cast<const float *>(operands.a), laid, static_cast<float *>(operands.c));
  gemm_.run(Member(0, 1, nullptr), operands, scratch);
}

}  // namespace protrain::backend::cpu
