// Makes LinearCrossEntropy kernels with slices of any size. Tests compare the bits that different sizes give.
#pragma once

#include "backend/common/linear_loss_shape.h"
#include "backend/cpu/kernel.h"

namespace protrain::backend::cpu {

KernelPtr make_linear_cross_entropy_in(const SliceRule &slices, const KernelRequest &request, int team_size);

}  // namespace protrain::backend::cpu
