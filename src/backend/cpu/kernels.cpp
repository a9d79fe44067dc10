// The look-up of a CPU kernel's factory by its operator.
#include "backend/cpu/kernel.h"
#include "base/text.h"

namespace protrain::backend::cpu {

Factory find_kernel(std::string_view op) {
  PROTRAIN_KERNELS(PROTRAIN_RETURN_FACTORY)
  return nullptr;
}

}  // namespace protrain::backend::cpu
