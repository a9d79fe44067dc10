// Floats as operands store them: float32, or bfloat16, which is computed in float32.
//
// A kernel that computes is a template over the stored element T: it works on `widened` elements, and what it stores is
// `narrowed` once. Its hot loops are static members of a class template, for those are compiled in clones (clones.h).
// Sums that go on after a block, a row or a micro-batch are float32 whatever T.
#pragma once

#include <memory>
#include <utility>

#include "arith/bf16.h"
#include "backend/cpu/clones.h"
#include "backend/cpu/kernel.h"

namespace protrain::backend {

using arith::bf16;
using arith::narrowed;
using arith::widened;

// make(T{}) with the T that `type` stores.
template <typename Make>
auto by_float(const KernelRequest &request, const graph::Type &type, Make make) {
  if (type.dtype == DType::bf16) return make(bf16{});
  require(type.dtype == DType::f32, Code::unsupported, subject(request),
          "{} on the cpu takes float32 and bfloat16, this operand is {}", request.node.op, name_of(type.dtype));
  return make(float{});
}

// KernelOf<T>(request, arguments...) with the T that `type` stores.
template <template <typename> class KernelOf, typename... Arguments>
std::unique_ptr<CpuKernel> make_by_float(const KernelRequest &request, const graph::Type &type,
                                         Arguments &&...arguments) {
  return by_float(request, type, [&]<typename T>(T) -> std::unique_ptr<CpuKernel> {
    return std::make_unique<KernelOf<T>>(request, std::forward<Arguments>(arguments)...);
  });
}

// Rows of elements, one way and the other.
template <typename T>
void widen(const T *from, float *to, std::int64_t count);
template <typename T>
void narrow(const float *from, T *to, std::int64_t count);

}  // namespace protrain::backend
