// The shape of the last product that the emulated blas was asked for. Its promises, such as the alignment, decide which
// algorithms cuBLASLt may choose from. A promise that is too small changes no bits, so tests must look at it here.
#pragma once

#include "backend/cuda/blas.h"

namespace protrain::emulation {

backend::cuda::GemmShape last_product();

}  // namespace protrain::emulation
