// The look-up of a CUDA kernel's factory by its operator.
#include "backend/cuda/kernel.h"
#include "base/text.h"

namespace protrain::backend::cuda {

Factory find_kernel(std::string_view op) {
  PROTRAIN_KERNELS(PROTRAIN_RETURN_FACTORY)
  return nullptr;
}

}  // namespace protrain::backend::cuda
