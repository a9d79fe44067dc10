// CudaKernel, and the factories of all CUDA kernels. A file here has the same kernels as the CPU's file of the same
// name.
//
// run() appends one or more launches to a stream and returns. A launch gets its arguments by value. It is captured once
// and replayed with the same arguments. So numbers that change from step to step are no arguments: they lie on the
// device, as StepScalars.
// A __device__ lambda never captures `this`, a host address that the device cannot follow.
#pragma once

#include <memory>
#include <string_view>

#include "arith/bf16.h"
#include "backend/cuda/blas.h"
#include "backend/cuda/fault.h"
#include "backend/cuda/runtime.h"
#include "backend/kernel_table.h"
#include "backend/request.h"
#include "base/error.h"
#include "base/threads.h"

namespace protrain::backend::cuda {

using arith::bf16;

class CudaKernel : public Kernel {
 public:
  virtual void run(Stream stream, const Launch &launch) = 0;
  // Runs the kernel on the host's team, with operands in host memory. Only the kernels of updates support this.
  virtual void run_on_host(Team &, const Launch &) {
    fail(Code::internal, "launch_alone", "only updates run on the host");
  }
};

// The state that all kernels of a device share: the faults that they note, and cuBLASLt's handle.
struct DeviceState {
  explicit DeviceState(bool tf32) : blas(tf32) {}
  Faults faults;
  Blas blas;
};

using KernelPtr = std::unique_ptr<CudaKernel>;
using Factory = KernelPtr (*)(const KernelRequest &request, DeviceState &device);
Factory find_kernel(std::string_view op);  // nullptr if there is no kernel

inline void require_dtype(const KernelRequest &request, const graph::Type &type, DType expected) {
  require(type.dtype == expected, Code::unsupported, subject(request), "{} on cuda takes {}, this operand is {}",
          request.node.op, name_of(expected), name_of(type.dtype));
}

// Calls make(T{}) with the C++ type T of the operand's elements. Throws Code::unsupported if they are neither float32
// nor bfloat16.
template <typename Make>
KernelPtr by_float(const KernelRequest &request, const graph::Type &type, Make make) {
  if (type.dtype == DType::bf16) return make(bf16{});
  require(type.dtype == DType::f32, Code::unsupported, subject(request),
          "{} on cuda takes float32 and bfloat16, this operand is {}", request.node.op, name_of(type.dtype));
  return make(float{});
}

// Calls make(T{}), where T is an unsigned integer as wide as an element of `dtype`. Kernels that only move elements
// need only their size.
template <typename Make>
KernelPtr by_size(const KernelRequest &request, DType dtype, Make make) {
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

// The factories of all operators, and of the device's own kernels (optimizer.cu).
#define PROTRAIN_DECLARE(MAKE, ...) KernelPtr MAKE(const KernelRequest &request, DeviceState &device);
PROTRAIN_KERNELS(PROTRAIN_DECLARE)
#undef PROTRAIN_DECLARE
KernelPtr make_update(const UpdateRequest &request);
KernelPtr make_check(DType dtype, const std::vector<std::uint32_t> &words, const DeviceState &device);

}  // namespace protrain::backend::cuda
