// The part of cuBLASLt that products use: a product's description, the algorithms there are for it, and its launch.
// blas.cu does it; tests have a twin without a GPU.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/runtime.h"
#include "base/dtype.h"

namespace protrain::backend::cuda {

// c (M, N) = alpha * op(a) op(b) [+ c] [+ bias], all row-major; a is (M, K), or (K, M) where trans_a; b is
// (K, N), or (N, K) where trans_b. Sums are float32; of float32 operands all bits count, but for a library that is made
// with tf32.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  bool accumulate = false;  // added to what c holds
  bool bias = false;        // (N), of c's type, added to every row
  float alpha = 1;
  DType in = DType::f32, out = DType::f32;    // of a and b; of c
  std::int64_t ld_a = 0, ld_b = 0, ld_c = 0;  // elements from one row to the next; 0: as many as a row has
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;  // elements from one product of the batch to the next
  std::uint64_t alignment = 64;                           // bytes that every operand's address is a multiple of
};

// Rows of the operands as they lie in memory.
struct GemmRows {
  std::int64_t a, b, c;
  explicit GemmRows(const GemmShape &s)
      : a(s.ld_a > 0 ? s.ld_a : (s.trans_a ? s.m : s.k)),
        b(s.ld_b > 0 ? s.ld_b : (s.trans_b ? s.k : s.n)),
        c(s.ld_c > 0 ? s.ld_c : s.n) {}
};

struct GemmOperands {
  const void *a;
  const void *b;
  void *c;
  const void *bias = nullptr;
};

// The library's handle; one a device. tf32: products of float32 are TensorFloat32's, whose factors have 10 bits behind
// the point.
class Blas {
 public:
  explicit Blas(bool tf32);
  ~Blas();
  Blas(const Blas &) = delete;
  Blas &operator=(const Blas &) = delete;
  void *handle() const { return handle_; }
  bool tf32() const { return tf32_; }
  std::string version() const;  // "13.1.0", "13.1.0 with TF32": algorithms are those of a version

 private:
  const bool tf32_;
  void *handle_ = nullptr;
};

inline constexpr int kMostAlgorithms = 16;
inline constexpr std::uint64_t kMostWorkspace = 32 << 20, kWorkspaceAlignment = 256;  // bytes

struct Algorithm {
  std::array<std::uint64_t, 8> words;  // the library's own
  std::uint64_t workspace;             // bytes
};

// A product of at least one element, made ready; `shape.bias`: added in the product's own launch.
class Product {
 public:
  Product(Blas &blas, const GemmShape &shape);
  ~Product();
  Product(Product &&) noexcept;

  // At most kMostAlgorithms, the library's guess of the quickest first; none where it cannot compute the product.
  std::vector<Algorithm> algorithms() const;
  // `workspace`: a multiple of kWorkspaceAlignment.
  void run(Stream stream, const GemmOperands &operands, const Algorithm &algorithm, void *workspace) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace protrain::backend::cuda
