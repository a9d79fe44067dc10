// The twin of src/backend/cuda/gemm.cu for machines without a GPU: plain loops.
#include "backend/cuda/gemm.h"

#include "arith/bf16.h"
#include "backend/cuda/launch.h"
#include "base/error.h"
#include "cuda/products.h"

namespace protrain::backend::cuda {

namespace {
GemmShape last;
constexpr std::uint64_t kWorkspace = 256;  // so that somebody notices when it is not there

template <typename In, typename Out>
void multiply(const GemmShape &s, const GemmOperands &o) {
  const GemmRows ld(s);
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    const In *a = static_cast<const In *>(o.a) + batch * s.stride_a,
             *b = static_cast<const In *>(o.b) + batch * s.stride_b;
    Out *c = static_cast<Out *>(o.c) + batch * s.stride_c;
    const Out *bias = s.bias ? static_cast<const Out *>(o.bias) : nullptr;
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        float sum = 0;
        for (std::int64_t l = 0; l < s.k; ++l)
          sum += arith::widened(s.trans_a ? a[l * ld.a + i] : a[i * ld.a + l]) *
                 arith::widened(s.trans_b ? b[j * ld.b + l] : b[l * ld.b + j]);
        sum *= s.alpha;
        if (s.accumulate) sum += arith::widened(c[i * ld.c + j]);
        if (bias != nullptr) sum += arith::widened(bias[j]);
        c[i * ld.c + j] = arith::narrowed<Out>(sum);
      }
  }
}
}  // namespace

Blas::Blas() = default;
Blas::~Blas() = default;

struct Gemm::State {
  GemmShape shape;
};

Gemm::Gemm(Blas &, const GemmShape &shape) : state_(std::make_unique<State>(State{shape})) { last = shape; }
Gemm::~Gemm() = default;
Gemm::Gemm(Gemm &&) noexcept = default;

std::uint64_t Gemm::scratch_bytes() const { return state_->shape.m * state_->shape.n == 0 ? 0 : kWorkspace; }

void Gemm::run(Stream stream, const GemmOperands &operands, void *scratch) const {
  const GemmShape shape = state_->shape;
  if (shape.m * shape.n * shape.batch == 0) return;
  for (const void *at : {operands.a, operands.b, static_cast<const void *>(operands.c)})
    require(reinterpret_cast<std::uintptr_t>(at) % shape.alignment == 0, Code::internal, "gemm",
            "an operand is not aligned to the {} bytes that were promised", shape.alignment);
  emulation::append(stream, [shape, operands, scratch] {
    std::memset(scratch, 0xA5, kWorkspace);
    if (shape.in == DType::f32) return multiply<float, float>(shape, operands);
    shape.out == DType::f32 ? multiply<bf16, float>(shape, operands) : multiply<bf16, bf16>(shape, operands);
  });
}

}  // namespace protrain::backend::cuda

protrain::backend::cuda::GemmShape protrain::emulation::last_product() { return backend::cuda::last; }
