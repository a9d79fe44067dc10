#include "backend/cpu/widened_product.h"

#include <algorithm>

#include "backend/cpu/floats.h"
#include "backend/cpu/parts.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
// The longest side of a panel. A panel is a part of a matrix, converted to float32. A product needs one panel each of
// a, b and c. At this size the three take at most 768 KiB, which many cores' second-level caches can hold.
constexpr std::int64_t kPanel = 256;

struct Sides {
  std::int64_t rows, columns;
};

std::uint64_t float_bytes(const Sides &panel) {
  return round_up(static_cast<std::uint64_t>(panel.rows * panel.columns) * sizeof(float), 64);
}

template <typename T>
struct Matrix {
  const T *at;
  std::int64_t ld;
  bool transposed;  // rows are stored as columns
};

// Widens the rows `rows` and columns `columns` of a matrix into a panel at `to`, in the order in which the matrix is
// stored. The panel has the size `panel`; its elements beyond these rows and columns become 0.
template <typename T>
void widen_panel(const Matrix<T> &matrix, Range rows, Range columns, Sides panel, float *to) {
  if (matrix.transposed) std::swap(rows, columns), std::swap(panel.rows, panel.columns);
  for (std::int64_t i = 0; i < panel.rows; ++i, to += panel.columns) {
    const std::int64_t count = i < rows.size() ? columns.size() : 0;
    if (count > 0) widen(matrix.at + (rows.begin + i) * matrix.ld + columns.begin, to, count);
    std::fill(to + count, to + panel.columns, 0.0F);
  }
}
}  // namespace

WidenedProduct::WidenedProduct(const GemmShape &shape, int seats)
    : shape_(shape),
      rows_(part_size(shape.m, kPanel)),
      columns_(part_size(shape.n, kPanel)),
      depth_(part_size(shape.k, kPanel)),
      product_({.m = rows_,
                .n = columns_,
                .k = depth_,
                .trans_a = shape.trans_a,
                .trans_b = shape.trans_b,
                .accumulate = true},
               seats),
      b_at_(float_bytes({rows_, depth_})),
      sums_at_(b_at_ + float_bytes({depth_, columns_})),
      product_at_(sums_at_ + float_bytes({rows_, columns_})) {}

void WidenedProduct::run(int seat, const GemmOperands &operands, void *scratch) {
  with_float(shape_.in, [&]<typename T>(T) { multiply<T>(seat, operands, scratch); });
}

template <typename T>
void WidenedProduct::multiply(int seat, const GemmOperands &operands, void *scratch) {
  const auto place = [scratch](std::uint64_t at) {
    return reinterpret_cast<float *>(static_cast<std::byte *>(scratch) + at);
  };
  float *a = place(0), *b = place(b_at_), *sums = place(sums_at_);
  const Matrix<T> left{static_cast<const T *>(operands.a), shape_.trans_a ? shape_.m : shape_.k, shape_.trans_a};
  const Matrix<T> right{static_cast<const T *>(operands.b), shape_.trans_b ? shape_.k : shape_.n, shape_.trans_b};
  for (std::int64_t j = 0; j < shape_.n; j += columns_)
    for (std::int64_t i = 0; i < shape_.m; i += rows_) {
      const Range rows = part_at(i, rows_, shape_.m), columns = part_at(j, columns_, shape_.n);
      std::fill_n(sums, rows_ * columns_, 0.0F);
      for (std::int64_t k = 0; k < shape_.k; k += depth_) {
        const Range depth = part_at(k, depth_, shape_.k);
        widen_panel(left, rows, depth, {rows_, depth_}, a);
        widen_panel(right, depth, columns, {depth_, columns_}, b);
        product_.run(seat, {a, b, sums}, place(product_at_));
      }
      if (shape_.out == DType::f32)
        finish<T, float>(sums, rows, columns, operands);
      else
        finish<T, T>(sums, rows, columns, operands);
    }
}

template <typename T, typename R>
void WidenedProduct::finish(const float *sums, Range rows, Range columns, const GemmOperands &operands) const {
  const auto *bias = static_cast<const T *>(operands.bias);
  for (std::int64_t i = rows.begin; i < rows.end; ++i, sums += columns_) {
    R *c = static_cast<R *>(operands.c) + i * shape_.n;
    for (std::int64_t j = columns.begin; j < columns.end; ++j) {
      float x = shape_.alpha * sums[j - columns.begin];
      if (shape_.bias) x += widened(bias[j]);
      if (shape_.accumulate) x += widened(c[j]);
      c[j] = narrowed<R>(x);
    }
  }
}

}  // namespace protrain::backend::cpu
