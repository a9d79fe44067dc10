// CpuKernel, and the factories of all CPU kernels.
//
// The device calls run() on every member of the team at once. A member takes its share of the work by member.index, and
// meets the others at member.barrier(). The index alone decides a member's share, so bits may depend on the team's size
// but never on timing. run() allocates nothing. Besides inputs and outputs it uses only launch.scratch, which has
// `scratch_bytes` bytes. The constructor sets `scratch_bytes`.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "backend/kernel_table.h"
#include "backend/request.h"
#include "base/error.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

class CpuKernel : public Kernel {
 public:
  virtual void run(Member &member, const Launch &launch) = 0;
};

// A factory runs in the thread of the team's first member.
using KernelPtr = std::unique_ptr<CpuKernel>;
using Factory = KernelPtr (*)(const KernelRequest &request, int team_size);
Factory find_kernel(std::string_view op);  // nullptr: no kernel

// Code::unsupported if the operand's type is not `expected`.
inline void require_dtype(const KernelRequest &request, const graph::Type &type, DType expected) {
  require(type.dtype == expected, Code::unsupported, subject(request), "{} on the cpu takes {}, this operand is {}",
          request.node.op, name_of(expected), name_of(type.dtype));
}

// The factories of all operators. make_reduce calls make_reduce_integers. make_update and make_check serve
// Device::compile_update and Device::compile_check (optimizer.cpp).
#define PROTRAIN_DECLARE(MAKE, ...) KernelPtr MAKE(const KernelRequest &request, int team_size);
PROTRAIN_KERNELS(PROTRAIN_DECLARE)
#undef PROTRAIN_DECLARE
KernelPtr make_reduce_integers(const KernelRequest &request);
KernelPtr make_update(const UpdateRequest &request);
KernelPtr make_check(DType dtype, const std::vector<std::uint32_t> &words);

}  // namespace protrain::backend::cpu
