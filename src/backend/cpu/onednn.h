// Functions for the files that call oneDNN. Other files do not include oneDNN's headers. Versions 2 and 3 of oneDNN
// have different interfaces; only this file and onednn.cpp know the differences.
#pragma once

#include <fmt/format.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <span>
#include <string>

#include "base/dtype.h"
#include "base/error.h"

namespace protrain::backend::cpu {

dnnl::engine &onednn_engine();
dnnl::stream &onednn_stream();  // holds no state on the cpu, so all threads share it

// Returns oneDNN's name of bfloat16 or float32.
inline dnnl::memory::data_type onednn_type(DType dtype) {
  return dtype == DType::bf16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

// Returns oneDNN's version, the number of the instructions that it may use (dnnl_cpu_isa_t), and its hints on their use
// (dnnl_cpu_isa_hints_t): "oneDNN 2.6.2, 0x67, hints 0". The variable ONEDNN_MAX_CPU_ISA limits the instructions, and
// ONEDNN_CPU_ISA_HINTS sets the hints.
std::string onednn_name();

// Returns true if oneDNN may use all of these instructions.
bool onednn_uses(dnnl::cpu_isa instructions);

// Returns the attributes that all primitives get. They let the caller provide the scratch of a primitive, and keep
// environment variables from changing its arithmetic.
dnnl::primitive_attr onednn_attributes();

// Describes a primitive of type P, such as dnnl::matmul. `operation` is what P::desc takes in version 2.
template <typename P, typename... Operation>
typename P::primitive_desc describe_primitive(const dnnl::primitive_attr &attributes, const Operation &...operation) {
#if DNNL_VERSION_MAJOR < 3
  return {typename P::desc(operation...), attributes, onednn_engine()};
#else
  return {onednn_engine(), operation..., attributes};
#endif
}
// Describes a gradient of the primitive that `forward` describes.
template <typename P, typename Forward, typename... Operation>
typename P::primitive_desc describe_gradient(const Forward &forward, const dnnl::primitive_attr &attributes,
                                             const Operation &...operation) {
#if DNNL_VERSION_MAJOR < 3
  return {typename P::desc(operation...), attributes, onednn_engine(), forward};
#else
  return {onednn_engine(), operation..., forward, attributes};
#endif
}

// Makes a primitive multiply its result, including its own bias, by `factor`. The post-ops that the caller appends to
// `behind` later see the multiplied result.
void scale_result(dnnl::primitive_attr &attributes, dnnl::post_ops &behind, float factor);

// A layout that cuts some axes into blocks, and stores each block as a whole.
struct BlockedLayout {
  dnnl::memory::dims dims;
  dnnl::memory::dims strides;  // per axis: elements from one block to the next, or between indices of an uncut axis
  dnnl::memory::dims cut;      // the axes that are cut
};
std::optional<BlockedLayout> blocked_layout(const dnnl::memory::desc &layout);  // none if it has another form

// Allocates as much memory as oneDNN needs to create a primitive, and frees the memory again. Code::nomem if there is
// not enough. oneDNN 2.6 does not check its own allocations. If an allocation fails, oneDNN makes its objects, or
// writes its code, at address 0. Its objects take some tens of KiB from malloc. Its code takes up to 36 buffers of 256
// KiB, mapped one by one.
void require_room_for_primitive();

[[noreturn]] void fail_to_make(const dnnl::error &error, const std::string &what);

// Makes `memory` use the data at `at` from now on.
inline dnnl_status_t point(dnnl::memory &memory, const void *at) {
  return dnnl_memory_set_data_handle(memory.get(), const_cast<void *>(at));
}
// Runs a primitive, and throws if the run fails. `status` is the result of the oneDNN calls that set the primitive's
// arguments. If it is a failure, execute() throws without running the primitive. `what` names the primitive in the
// error, such as "a product".
void execute(dnnl_status_t status, const dnnl::primitive &primitive, std::span<const dnnl_exec_arg_t> arguments,
             const char *what);

}  // namespace protrain::backend::cpu
