// The shape of the last product that the emulated blas computed. The shape includes promises of the caller, such as the
// alignment of the operands. A caller that promises too little rules out fast algorithms on a GPU, but no result
// changes. So tests check the promises themselves.
#pragma once

#include "backend/cuda/blas.h"

namespace protrain::emulation {

backend::cuda::GemmShape last_product();

}  // namespace protrain::emulation
