#include "backend/cpu/onednn.h"

#include "base/memory.h"

namespace protrain::backend::cpu {

// Engine and stream are never destroyed, because a thread may still step while the process exits.
dnnl::engine &onednn_engine() {
  static dnnl::engine &cpu = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream &onednn_stream() {
  static dnnl::stream &cpu = *new dnnl::stream(onednn_engine());
  return cpu;
}

std::string onednn_name() {
  const dnnl_version_t &version = *dnnl_version();
  return fmt::format("oneDNN {}.{}.{}, {:#x}, hints {}", version.major, version.minor, version.patch,
                     static_cast<unsigned>(dnnl_get_effective_cpu_isa()),
                     static_cast<unsigned>(dnnl_get_cpu_isa_hints()));
}

bool onednn_uses(dnnl::cpu_isa instructions) {
  const auto bits = static_cast<unsigned>(instructions);  // one bit for each set of instructions
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & bits) == bits;
}

dnnl::primitive_attr onednn_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);  // ignores ONEDNN_DEFAULT_FPMATH_MODE
  return attributes;
}

#if DNNL_VERSION_MAJOR < 3
void scale_result(dnnl::primitive_attr &attributes, dnnl::post_ops &, float factor) {
  attributes.set_output_scales(0, {factor});
}

std::optional<BlockedLayout> blocked_layout(const dnnl::memory::desc &layout) {
  const dnnl_memory_desc_t &d = layout.data;
  if (d.format_kind != dnnl_blocked) return std::nullopt;
  const dnnl_blocking_desc_t &blocks = d.format_desc.blocking;
  return BlockedLayout{{d.dims, d.dims + d.ndims},
                       {blocks.strides, blocks.strides + d.ndims},
                       {blocks.inner_idxs, blocks.inner_idxs + blocks.inner_nblks}};
}
#else
void scale_result(dnnl::primitive_attr &, dnnl::post_ops &behind, float factor) {
  behind.append_eltwise(dnnl::algorithm::eltwise_linear, factor, 0);
}

std::optional<BlockedLayout> blocked_layout(const dnnl::memory::desc &layout) {
  if (layout.get_format_kind() != dnnl::memory::format_kind::blocked) return std::nullopt;
  return BlockedLayout{layout.get_dims(), layout.get_strides(), layout.get_inner_idxs()};
}
#endif

void require_room_for_primitive() {
  require_mappable(12 << 20, "oneDNN");
  require_heap(96 << 10, "oneDNN");
}

void fail_to_make(const dnnl::error &error, const std::string &what) {
  fail(error.status == dnnl_out_of_memory ? Code::nomem : Code::device, "oneDNN", "{} could not be made ready: {}",
       what, error.what());
}

void execute(dnnl_status_t status, const dnnl::primitive &primitive, std::span<const dnnl_exec_arg_t> arguments,
             const char *what) {
  if (status == dnnl_success)
    status = dnnl_primitive_execute(primitive.get(), onednn_stream().get(), static_cast<int>(arguments.size()),
                                    arguments.data());
  require(status == dnnl_success, status == dnnl_out_of_memory ? Code::nomem : Code::device, "oneDNN",
          "{} failed with status {}", what, static_cast<int>(status));
}

}  // namespace protrain::backend::cpu
