// What a CPU kernel is, and the factories of all of them.
//
// A kernel's run() is called on every member of the team at once; it takes its share of the work by member.index, and
// meets the others at member.barrier(). What depends on the team size may change bits, what depends on timing may not:
// pieces are cut by index alone. run() allocates nothing; what it needs between inputs and outputs is
// `scratch_bytes` of arena, set by the constructor and given as launch.scratch.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/request.h"
#include "base/error.h"
#include "base/threads.h"

namespace protrain::backend {

class CpuKernel : public Kernel {
 public:
  virtual void run(Member &member, const Launch &launch) = 0;
};

// Called on the team's first member.
using Factory = std::unique_ptr<CpuKernel> (*)(const KernelRequest &request, int team_size);
Factory find_kernel(std::string_view op);  // nullptr: no kernel

// Code::unsupported where the operand is not of the type the kernel was written for.
inline void require_dtype(const KernelRequest &request, const graph::Type &type, DType expected) {
  require(type.dtype == expected, Code::unsupported, subject(request), "{} on the cpu takes {}, this operand is {}",
          request.node.op, name_of(expected), name_of(type.dtype));
}

// unary.cpp: every one-in one-out float operator, Not, IsNaN, IsInf, and the ...Grad of each
std::unique_ptr<CpuKernel> make_unary(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_unary_grad(const KernelRequest &request, int team_size);
// gated.cpp
std::unique_ptr<CpuKernel> make_gated(const KernelRequest &request, int team_size);  // and gradient
// binary.cpp
std::unique_ptr<CpuKernel> make_binary(const KernelRequest &request, int team_size);  // comparisons and logic too
std::unique_ptr<CpuKernel> make_where(const KernelRequest &request, int team_size);
// cast.cpp
std::unique_ptr<CpuKernel> make_cast(const KernelRequest &request, int team_size);
// movement.cpp
std::unique_ptr<CpuKernel> make_transpose(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_moves(const KernelRequest &request, int team_size);  // what backend/moves.h lists
std::unique_ptr<CpuKernel> make_trilu(const KernelRequest &request, int team_size);
// gather.cpp
std::unique_ptr<CpuKernel> make_gather(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_gather_grad(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_gather_elements(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_gather_elements_grad(const KernelRequest &request, int team_size);
// reduce.cpp; reduce_integers.cpp
std::unique_ptr<CpuKernel> make_reduce(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_reduce_integers(const KernelRequest &request);
// along_axis.cpp: CumSum; ArgMax, ArgMin; TopK
std::unique_ptr<CpuKernel> make_cumsum(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_arg(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_topk(const KernelRequest &request, int team_size);
// softmax.cpp: Softmax, LogSoftmax; SoftmaxGrad, LogSoftmaxGrad
std::unique_ptr<CpuKernel> make_softmax(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_softmax_grad(const KernelRequest &request, int team_size);
// normalization.cpp: LayerNormalization, RMSNormalization; their gradients
std::unique_ptr<CpuKernel> make_normalization(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_normalization_grad(const KernelRequest &request, int team_size);
// rotary.cpp
std::unique_ptr<CpuKernel> make_rotary(const KernelRequest &request, int team_size);
// matmul.cpp
std::unique_ptr<CpuKernel> make_matmul(const KernelRequest &request, int team_size);
// attention.cpp, attention_grad.cpp
std::unique_ptr<CpuKernel> make_attention(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_attention_grad(const KernelRequest &request, int team_size);
// loss.cpp, linear_loss.cpp
std::unique_ptr<CpuKernel> make_cross_entropy(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_cross_entropy_grad(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_linear_cross_entropy(const KernelRequest &request, int team_size);  // and gradient
// dropout.cpp: its own gradient as well
std::unique_ptr<CpuKernel> make_dropout(const KernelRequest &request, int team_size);
// norm.cpp
std::unique_ptr<CpuKernel> make_loss_scale(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_squared_norm(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_global_norm(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_scaled_norm(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_gradient_scale(const KernelRequest &request, int team_size);
// accumulate.cpp
std::unique_ptr<CpuKernel> make_accumulate(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_count_targets(const KernelRequest &request, int team_size);
std::unique_ptr<CpuKernel> make_counted_loss(const KernelRequest &request, int team_size);

}  // namespace protrain::backend
