// Products of bfloat16 matrices on tensor cores, (16, 16) x (16, 8); loads that bring operands into the layout below;
// and asynchronous copies to shared memory. They need sm_80 or newer. All threads of a warp call these functions
// together.
//
// Lane 4 g + t (g < 8, t < 4) holds these elements of a matrix. A pair is two neighbours in a row of A, or in a column
// of B.
//   A (16, 16)  pairs that begin at (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)
//   B (16, 8)   pairs that begin at (2t, g), (2t + 8, g)
//   C (16, 8)   (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1), in float32
// So two Cs side by side, narrowed to bfloat16, are an A. The result of one product becomes an operand of the next
// product without leaving registers.
#pragma once

#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

struct Quad {  // A, or two Bs side by side
  Pair at[4];
};
struct Sums {  // C
  float at[4];
};

struct Lane {
  int g, t;
};
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline Lane lane() { return {lane_index() / 4, lane_index() % 4}; }

#if defined(__CUDACC__)
// Adds the product a b to c. b0 and b1 are the two pairs of b.
__device__ inline void mma(Sums &c, const Quad &a, Pair b0, Pair b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3])
      : "r"(a.at[0]), "r"(a.at[1]), "r"(a.at[2]), "r"(a.at[3]), "r"(b0), "r"(b1));
}

// Loads four 8 x 8 matrices from shared memory. In lane l, `row` points to row l % 8 of matrix l / 8. A row has 16
// bytes and begins at a multiple of 16 bytes. Lane 4 g + t gets elements (g, 2t) and (g, 2t + 1) of each matrix; if
// kTransposed, elements (2t, g) and (2t + 1, g).
template <bool kTransposed>
__device__ Quad load_matrices(const bf16 *row) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  Quad q;
  if constexpr (kTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(q.at[0]), "=r"(q.at[1]), "=r"(q.at[2]), "=r"(q.at[3])
                 : "r"(at)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(q.at[0]), "=r"(q.at[1]), "=r"(q.at[2]), "=r"(q.at[3])
                 : "r"(at)
                 : "memory");
  return q;
}

// Begins to copy kBytes (8 or 16) to shared memory. If `given` is false, writes zeros instead. Both addresses are
// multiples of kBytes. This thread sees the bytes after wait_for_copies(), and the other threads after the next
// __syncthreads().
template <int kBytes>
__device__ void copy_async(void *to, const void *from, bool given) {
  const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const int bytes = given ? kBytes : 0;
  if constexpr (kBytes == 16)  // skips the L1 cache, because no other thread of the block reads the same bytes
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
}
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Returns `value`, but hides from the compiler how the value was computed. So the compiler cannot move computations
// with the value ahead of a loop, where their results would take registers that the loop needs.
__device__ inline int unforeseen(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
#else
inline float element_of(Pair pair, int i) { return widened(bf16{static_cast<std::uint16_t>(pair >> 16 * i)}); }

inline void mma(Sums &c, const Quad &a, Pair b0, Pair b1) {
  struct Operands {
    Quad a;
    Pair b[2];
  };
  emulation::exchange(Operands{a, {b0, b1}}, [&](auto operands_of) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane().g + i / 2 * 8, column = lane().t * 2 + i % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k) {
        const Operands left = operands_of(row % 8 * 4 + k % 8 / 2), right = operands_of(column * 4 + k % 8 / 2);
        sum += element_of(left.a.at[k / 8 * 2 + row / 8], k % 2) * element_of(right.b[k / 8], k % 2);
      }
      c.at[i] += sum;
    }
  });
}

template <bool kTransposed>
Quad load_matrices(const bf16 *row) {
  Quad q;
  emulation::exchange(row, [&](auto row_of) {
    const int g = lane().g, column = lane().t * 2;
    for (int i = 0; i < 4; ++i) {
      auto element = [&](int r, int c) -> Pair { return row_of(8 * i + r)[c].bits; };
      const Pair first = kTransposed ? element(column, g) : element(g, column);
      const Pair second = kTransposed ? element(column + 1, g) : element(g, column + 1);
      q.at[i] = second << 16 | first;
    }
  });
  return q;
}

template <int kBytes>
void copy_async(void *to, const void *from, bool given) {
  emulation::copy_async(to, given ? from : nullptr, kBytes);
}
inline void wait_for_copies() { emulation::wait_for_copies(); }
inline int unforeseen(int value) { return value; }
#endif

// Returns a left operand A made of two results C side by side, narrowed to bfloat16.
__device__ inline Quad narrowed_quad(const Sums &left, const Sums &right) {
  return {{narrowed_pair(left.at[0], left.at[1]), narrowed_pair(left.at[2], left.at[3]),
           narrowed_pair(right.at[0], right.at[1]), narrowed_pair(right.at[2], right.at[3])}};
}

// Adds the product of two matrices to `sums`. The left matrix has strips of 16 rows, and sums[m] belongs to strip m.
// The inner dim is cut into kSteps parts of 16. left(k, m) returns part k of strip m, an A (16, 16). right(k, n)
// returns columns 16 n to 16 n + 15 of part k of the right matrix, as two Bs side by side. The right matrix has 8
// kTiles columns.
template <int kSteps, typename Left, typename Right, int kStrips, int kTiles>
__device__ void add_product(const Left &left, const Right &right, Sums (&sums)[kStrips][kTiles]) {
  static_assert(kTiles % 2 == 0);
  PROTRAIN_UNROLL for (int k = 0; k < kSteps; ++k) {
    Quad a[kStrips];
    PROTRAIN_UNROLL for (int m = 0; m < kStrips; ++m) a[m] = left(k, m);
    PROTRAIN_UNROLL for (int n = 0; n < kTiles; n += 2) {
      const Quad b = right(k, n / 2);
      PROTRAIN_UNROLL for (int m = 0; m < kStrips; ++m) {
        mma(sums[m][n], a[m], b.at[0], b.at[1]);
        mma(sums[m][n + 1], a[m], b.at[2], b.at[3]);
      }
    }
  }
}

}  // namespace protrain::backend::cuda
