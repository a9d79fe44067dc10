// The backend's interface to cuBLASLt: a product's description, its algorithms, and its launch. blas.cu implements it.
// Tests have another implementation, which needs no GPU.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/common/stored.h"
#include "backend/cuda/runtime.h"
#include "base/dtype.h"

namespace protrain::backend::cuda {

// c (M, N) = alpha * op(a) op(b) [+ c] [+ bias], all row-major. a is (M, K), or (K, M) if trans_a. b is (K, N), or
// (N, K) if trans_b. Sums are float32. Products use all bits of float32 operands, unless Blas was made with tf32.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  bool accumulate = false;  // the product is added to c, or to the operand `addend` if there is one
  bool bias = false;        // a bias (N) of c's type is added to every row
  float alpha = 1;
  DType in = DType::f32, out = DType::f32;    // in: type of a and b; out: type of c
  std::int64_t ld_a = 0, ld_b = 0, ld_c = 0;  // elements from one row to the next; 0: as many as a row has
  std::int64_t batch = 1;
  std::int64_t stride_a = 0, stride_b = 0, stride_c = 0;  // elements from one product of the batch to the next
  std::uint64_t alignment = 64;                           // bytes; every operand's address is a multiple of it
};

// The distance between the rows of each operand, in elements.
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
  StoredOperand stored = {};     // takes the place of b in a product with stored weights
  const void *addend = nullptr;  // of c's shape, type and strides; may be c
};

// The handle of cuBLASLt. Each device has one. With `tf32`, products of float32 round their factors to 10 bits of
// mantissa (TensorFloat32).
class Blas {
 public:
  explicit Blas(bool tf32);
  ~Blas();
  Blas(const Blas &) = delete;
  Blas &operator=(const Blas &) = delete;
  void *handle() const { return handle_; }
  bool tf32() const { return tf32_; }
  std::string version() const;  // "13.1.0", "13.1.0 with TF32"; algorithms differ from version to version

 private:
  const bool tf32_;
  void *handle_ = nullptr;
};

inline constexpr std::int64_t kMostBatch = 65535;  // with more products in a batch, some algorithms are refused
inline constexpr int kMostAlgorithms = 16;
inline constexpr std::uint64_t kMostWorkspace = 32 << 20, kWorkspaceAlignment = 256;  // bytes

struct Algorithm {
  std::array<std::uint64_t, 8> words;  // cuBLASLt's own data
  std::uint64_t workspace;             // bytes
};

// A product of at least one element, described to cuBLASLt. If `shape.bias` is set, run() also adds the bias.
class Product {
 public:
  Product(Blas &blas, const GemmShape &shape);
  ~Product();
  Product(Product &&) noexcept;

  // Returns at most kMostAlgorithms algorithms. cuBLASLt expects the first to be the fastest. The list is empty if
  // cuBLASLt cannot compute the product.
  std::vector<Algorithm> algorithms() const;
  // `workspace` begins at a multiple of kWorkspaceAlignment.
  void run(Stream stream, const GemmOperands &operands, const Algorithm &algorithm, void *workspace) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace protrain::backend::cuda
