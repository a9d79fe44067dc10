// Sums of a matrix's columns, in an order that the matrix's shape alone fixes. A block sums 32 packs of neighbouring
// columns, one for each lane of a warp, over a part of the rows. Each of the block's n warps takes every n-th row of
// the part, and the warps' sums are joined in shared memory. The sums of the parts are the rows of a second matrix, and
// a second launch sums its columns.
#pragma once

#include <algorithm>

#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

template <typename T>
struct Matrix {
  const T *at;
  std::int64_t rows, columns, ld;  // ld: elements from one row to the next
};

// The number of elements in 16 bytes.
template <typename T>
inline constexpr int kWide = 16 / static_cast<int>(sizeof(T));

inline bool begins_wide_rows(std::int64_t ld, std::size_t element_bytes) {
  return static_cast<std::size_t>(ld) * element_bytes % 16 == 0;
}

// Returns how many columns a block sums, if each lane takes `width`.
inline constexpr std::int64_t column_group(int width) { return std::int64_t{kWarp} * width; }

// Cuts the rows of x into parts of `part` rows, and sums each column over each part, in type A. Calls put(part, column,
// sum) for each part and column.
template <int kWidth, typename A, typename T, typename Put>
__global__ void columns_kernel(Matrix<T> x, std::int64_t part, Put put) {
  constexpr int kWarps = kBlock / kWarp;
  __shared__ A sums[kWarps][kWidth * kWarp];
  std::int64_t group = 0;
  const std::int64_t at = divide(blockIdx.x, divided_up(x.columns, column_group(kWidth)), group), first = at * part;
  const std::int64_t end = first + part < x.rows ? first + part : x.rows, begin = group * column_group(kWidth);
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = begin + lane * kWidth;
  A own[kWidth] = {};
  // If a pack reaches beyond the last column, the loop also sums the padding there. These sums are not used.
  if (column < x.columns)
    for (std::int64_t row = first + warp; row < end; row += kWarps) {
      const Pack<T, kWidth> pack = load<kWidth>(x.at + row * x.ld + column);
      PROTRAIN_UNROLL
      for (int i = 0; i < kWidth; ++i) own[i] += static_cast<A>(operand(pack.at[i]));
    }
  PROTRAIN_UNROLL
  for (int i = 0; i < kWidth; ++i) sums[warp][i * kWarp + lane] = own[i];
  __syncthreads();
  for (int i = warp; i < kWidth; i += kWarps) {
    if (column + i >= x.columns) continue;
    A sum = 0;
    PROTRAIN_UNROLL
    for (int w = 0; w < kWarps; ++w) sum += sums[w][i * kWarp + lane];
    put(at, column + i, sum);
  }
}

template <typename A>
struct PutPartial {
  A *to;  // (parts, columns)
  std::int64_t columns;
  __device__ void operator()(std::int64_t part, std::int64_t column, A sum) const { to[part * columns + column] = sum; }
};
template <typename Finish>
struct PutFinished {
  Finish finish;
  template <typename A>
  __device__ void operator()(std::int64_t, std::int64_t column, A sum) const {
    finish(column, static_cast<double>(sum));
  }
};

template <int kWidth, typename A, typename T, typename Put>
void sum_parts(Stream stream, const Matrix<T> &x, std::int64_t part, std::int64_t parts, Put put) {
  launch(stream, columns_kernel<kWidth, A, T, Put>, {parts * divided_up(x.columns, column_group(kWidth))}, x, part,
         put);
}

// Sums the columns of a matrix that has few rows, such as the matrix of the parts' sums. Calls finish(column, sum) for
// each column.
template <typename T, typename Finish>
void join_parts(Stream stream, const Matrix<T> &partial, Finish finish) {
  sum_parts<1, double>(stream, partial, partial.rows, 1, PutFinished<Finish>{finish});
}

// The sums of all columns of a matrix. A thread sums bfloat16 elements in float32, which is far more precise than
// bfloat16, and all other elements in double.
template <typename T>
class ColumnSums {
 public:
  ColumnSums() = default;
  // `ld` is the distance between rows, in elements. Matrices begin at multiples of 16 bytes.
  ColumnSums(std::int64_t rows, std::int64_t columns, std::int64_t ld)
      : wide_(begins_wide_rows(ld, sizeof(T))), rows_(rows), columns_(columns), ld_(ld) {
    const std::int64_t groups = divided_up(columns, column_group(wide_ ? kWide<T> : 1));
    const std::int64_t useful = divided_up(kEnoughBlocks, std::max<std::int64_t>(groups, 1));
    const std::int64_t parts = std::clamp<std::int64_t>(rows / kLeastRows, 1, std::min(kMostParts, useful));
    part_ = std::max<std::int64_t>(1, divided_up(rows, parts));
    parts_ = std::max<std::int64_t>(1, divided_up(rows, part_));
  }

  std::uint64_t scratch_bytes() const {
    return parts_ == 1 ? 0 : checked_multiply(static_cast<std::uint64_t>(parts_ * columns_), sizeof(A));
  }

  // Calls finish(column, sum) for each column, with the sum in double.
  template <typename Finish>
  void run(Stream stream, const T *x, void *scratch, Finish finish) const {
    const Matrix<T> matrix{x, rows_, columns_, ld_};
    if (parts_ == 1) return sum(stream, matrix, PutFinished<Finish>{finish});
    auto *partial = static_cast<A *>(scratch);
    sum(stream, matrix, PutPartial<A>{partial, columns_});
    join_parts(stream, Matrix<A>{partial, parts_, columns_, columns_}, finish);
  }

 private:
  using A = std::conditional_t<std::is_same_v<T, bf16>, float, double>;
  static constexpr std::int64_t kEnoughBlocks = 132 * 8, kMostParts = 256;
  static constexpr std::int64_t kLeastRows = kEmulated ? 20 : 64;  // in a part

  template <typename Put>
  void sum(Stream stream, const Matrix<T> &x, Put put) const {
    if (wide_)
      sum_parts<kWide<T>, A>(stream, x, part_, parts_, put);
    else
      sum_parts<1, A>(stream, x, part_, parts_, put);
  }

  bool wide_ = false;  // rows begin at multiples of 16 bytes
  std::int64_t rows_ = 0, columns_ = 0, ld_ = 0;
  std::int64_t part_ = 1, parts_ = 1;  // rows in a part; number of parts
};

}  // namespace protrain::backend::cuda
