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

dnnl::primitive_attr onednn_attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);  // ignores ONEDNN_DEFAULT_FPMATH_MODE
  return attributes;
}

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
