#include "backend/cuda/gemm.h"

#include "backend/cuda/elementwise.h"
#include "base/error.h"

namespace protrain::backend::cuda {

namespace {
// Fills c with 0, or each of its rows with the bias.
template <typename T>
void fill(Stream stream, const GemmShape &s, const GemmOperands &operands) {
  T *c = static_cast<T *>(operands.c);
  const T *bias = s.bias ? static_cast<const T *>(operands.bias) : nullptr;
  for (std::int64_t b = 0; b < s.batch; ++b)
    each(stream, s.m * s.n, [to = c + b * s.stride_c, bias, n = s.n, ld = GemmRows(s).c] __device__(std::int64_t i) {
      to[i / n * ld + i % n] = bias != nullptr ? bias[i % n] : T{};
    });
}
void fill(Stream stream, const GemmShape &s, const GemmOperands &operands) {
  s.out == DType::bf16 ? fill<bf16>(stream, s, operands) : fill<float>(stream, s, operands);
}
}  // namespace

Gemm::Gemm(Blas &blas, const GemmShape &shape) : shape_(shape) {
  require(!(shape.bias && shape.accumulate), Code::internal, "gemm", "a bias is not added to what c holds");
  if (shape.m == 0 || shape.n == 0 || shape.k == 0 || shape.batch == 0) return;
  product_.emplace(blas, shape);
  algorithms_ = product_->algorithms();
  // cuBLASLt computes some products only without a bias, such as products of bfloat16 with rows of an odd length.
  if (shape.bias && algorithms_.empty()) {
    GemmShape plain = shape;
    plain.bias = false;
    plain.accumulate = bias_apart_ = true;
    product_.emplace(blas, plain);
    algorithms_ = product_->algorithms();
  }
  require(!algorithms_.empty(), Code::unsupported, "device", "cuBLASLt has no algorithm for a product of {} x {} x {}",
          shape.m, shape.k, shape.n);
}

// Scratch begins at a multiple of kAlignment. cuBLASLt's workspace needs a larger alignment, so scratch has room to
// move the workspace up.
std::uint64_t Gemm::scratch_bytes() const {
  if (!product_ || algorithms_[chosen_].workspace == 0) return 0;
  return algorithms_[chosen_].workspace + kWorkspaceAlignment - kAlignment;
}

void Gemm::run(Stream stream, const GemmOperands &operands, void *scratch) const {
  if (!product_) {  // c has no elements, or K = 0
    if (!shape_.accumulate) fill(stream, shape_, operands);
    return;
  }
  if (bias_apart_) fill(stream, shape_, operands);
  void *workspace = reinterpret_cast<void *>(round_up(reinterpret_cast<std::uintptr_t>(scratch), kWorkspaceAlignment));
  product_->run(stream, operands, algorithms_[chosen_], workspace);
}

}  // namespace protrain::backend::cuda
