// Makes LinearCrossEntropy kernels that cut the logits into slices of any size. Tests use them to compare the bits of
// the results for different sizes.
#pragma once

#include "backend/common/linear_loss_shape.h"
#include "backend/cpu/kernel.h"

namespace protrain::backend::cpu {

KernelPtr make_linear_cross_entropy_in(const SliceRule &slices, const KernelRequest &request, int team_size);

}  // namespace protrain::backend::cpu
