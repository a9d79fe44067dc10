// The shape of the last product that the emulated blas computed. The shape includes promises of the caller, such as the
// alignment of the operands. On a GPU, a weaker promise rules out fast algorithms but changes no result. So tests check
// the promises here.
#pragma once

#include "backend/cuda/blas.h"

namespace protrain::emulation {

backend::cuda::GemmShape last_product();

}  // namespace protrain::emulation
