// Helpers that the kernels of recurrent layers share with the kernels of their gradients. Each time step runs a matrix
// product, then a kernel with one thread per sample and unit. If a GRU's reset gate multiplies h, each time step runs
// two products, with such a kernel after each. Sums and cell states are float32, whatever the operands' type.
#pragma once

#include <initializer_list>
#include <numeric>

#include "backend/common/recurrent_shape.h"
#include "backend/common/scratch_layout.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/gemm.h"

namespace protrain::backend::cuda {

// Returns the largest power of two, up to kAlignment, that divides all of these distances in bytes.
inline std::uint64_t common_alignment(std::initializer_list<std::int64_t> distances) {
  auto alignment = static_cast<std::int64_t>(kAlignment);
  for (std::int64_t bytes : distances) alignment = std::gcd(alignment, bytes);
  return static_cast<std::uint64_t>(alignment);
}

__device__ inline float activated(const arith::Activation &a, float x) {
  return arith::with_activation(a.kind, [&](auto f) { return arith::value_of<decltype(f)>(a, x); });
}
__device__ inline float slope_at(const arith::Activation &a, float y) {
  return arith::with_activation(a.kind, [&](auto f) { return arith::slope_of<decltype(f)>(a, y); });
}

template <typename T>
void fill_zeros(Stream stream, T *to, std::int64_t count) {
  each(stream, count, [to] __device__(std::int64_t i) { to[i] = T{}; });
}

// Calls body(b, j) for each sample b and unit j. The body is a __device__ lambda that captures values.
template <typename Body>
void each_unit(Stream stream, std::int64_t batch, std::int64_t units, Body body) {
  each(stream, batch * units, [units, body] __device__(std::int64_t i) {
    std::int64_t j = 0;
    const std::int64_t b = divide(i, units, j);
    body(b, j);
  });
}

template <typename E>
E *scratch_at(const Launch &launch, std::uint64_t offset) {
  return reinterpret_cast<E *>(static_cast<std::byte *>(launch.scratch) + offset);
}

}  // namespace protrain::backend::cuda
