// What a CUDA kernel is, and the factories of all of them. A file here is the twin of the CPU's of that name.
//
// run() appends one or more launches to a stream and returns; everything they need is passed by value, but the step's
// scalars, which lie on the device: launches are recorded once and done again. A launch takes no member of the kernel
// through `this`: the device cannot follow the pointer.
#pragma once

#include <memory>
#include <string_view>

#include "arith/bf16.h"
#include "backend/cuda/fault.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/runtime.h"
#include "backend/request.h"
#include "base/error.h"
#include "base/threads.h"

namespace protrain::backend::cuda {

using arith::bf16;

class CudaKernel : public Kernel {
 public:
  virtual void run(Stream stream, const Launch &launch) = 0;
  // By the team, in memory of the host; Updates alone can.
  virtual void run_on_host(Team &, const Launch &) {
    fail(Code::internal, "launch_alone", "only updates run on the host");
  }
};

// What kernels share of the device they are made for.
struct Site {
  explicit Site(bool tf32) : blas(tf32) {}
  Faults faults;
  Blas blas;
};

using Made = std::unique_ptr<CudaKernel>;
using Factory = Made (*)(const KernelRequest &request, Site &site);
Factory find_kernel(std::string_view op);  // nullptr: no kernel

inline void require_dtype(const KernelRequest &request, const graph::Type &type, DType expected) {
  require(type.dtype == expected, Code::unsupported, subject(request), "{} on cuda takes {}, this operand is {}",
          request.node.op, name_of(expected), name_of(type.dtype));
}

// make(element) for float32 or bfloat16, whichever `type` holds.
template <typename Make>
Made by_float(const KernelRequest &request, const graph::Type &type, Make make) {
  if (type.dtype == DType::bf16) return make(bf16{});
  require(type.dtype == DType::f32, Code::unsupported, subject(request),
          "{} on cuda takes float32 and bfloat16, this operand is {}", request.node.op, name_of(type.dtype));
  return make(float{});
}

// make(element) with an unsigned type as wide as the elements of `dtype`: for what only moves them.
template <typename Make>
Made by_size(const KernelRequest &request, DType dtype, Make make) {
  switch (size_of(dtype)) {
    case 1:
      return make(std::uint8_t{});
    case 2:
      return make(std::uint16_t{});
    case 4:
      return make(std::uint32_t{});
    case 8:
      return make(std::uint64_t{});
    default:
      fail(Code::unsupported, subject(request), "elements of type {} cannot be moved", name_of(dtype));
  }
}

Made make_unary(const KernelRequest &request, Site &site);
Made make_unary_grad(const KernelRequest &request, Site &site);
Made make_gated(const KernelRequest &request, Site &site);  // and gradient
Made make_binary(const KernelRequest &request, Site &site);
Made make_where(const KernelRequest &request, Site &site);
Made make_cast(const KernelRequest &request, Site &site);
Made make_moves(const KernelRequest &request, Site &site);
inline constexpr Factory make_transpose = make_moves;
Made make_trilu(const KernelRequest &request, Site &site);
Made make_gather(const KernelRequest &request, Site &site);
Made make_gather_grad(const KernelRequest &request, Site &site);
Made make_gather_elements(const KernelRequest &request, Site &site);
Made make_gather_elements_grad(const KernelRequest &request, Site &site);
Made make_reduce(const KernelRequest &request, Site &site);
Made make_cumsum(const KernelRequest &request, Site &site);
Made make_arg(const KernelRequest &request, Site &site);
Made make_topk(const KernelRequest &request, Site &site);
Made make_softmax(const KernelRequest &request, Site &site);
Made make_softmax_grad(const KernelRequest &request, Site &site);
Made make_normalization(const KernelRequest &request, Site &site);
Made make_normalization_grad(const KernelRequest &request, Site &site);
Made make_rotary(const KernelRequest &request, Site &site);
Made make_matmul(const KernelRequest &request, Site &site);
Made make_attention(const KernelRequest &request, Site &site);
Made make_attention_grad(const KernelRequest &request, Site &site);
Made make_cross_entropy(const KernelRequest &request, Site &site);
Made make_cross_entropy_grad(const KernelRequest &request, Site &site);
Made make_linear_cross_entropy(const KernelRequest &request, Site &site);  // and gradient
Made make_dropout(const KernelRequest &request, Site &site);
Made make_loss_scale(const KernelRequest &request, Site &site);
Made make_squared_norm(const KernelRequest &request, Site &site);
Made make_global_norm(const KernelRequest &request, Site &site);
Made make_scaled_norm(const KernelRequest &request, Site &site);
Made make_gradient_scale(const KernelRequest &request, Site &site);
Made make_accumulate(const KernelRequest &request, Site &site);
Made make_count_targets(const KernelRequest &request, Site &site);
Made make_counted_loss(const KernelRequest &request, Site &site);

// optimizer.cu
Made make_update(const UpdateRequest &request);
Made make_check(DType dtype, const std::vector<std::uint32_t> &marks, const Site &site);

}  // namespace protrain::backend::cuda
