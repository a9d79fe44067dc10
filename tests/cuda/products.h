// The shape of the last product that the emulated blas computed. It includes what the caller promises, such as the
// operands' alignment, which decides which algorithms cuBLASLt may use. A promise that is weaker than necessary changes
// no result, only the speed, so tests must look at it here.
#pragma once

#include "backend/cuda/blas.h"

namespace protrain::emulation {

backend::cuda::GemmShape last_product();

}  // namespace protrain::emulation
