// LinearCrossEntropy with slices of other sizes than the CPU's own. Tests compare their bits.
#pragma once

#include "backend/common/linear_loss_shape.h"
#include "backend/cpu/kernel.h"

namespace protrain::backend::cpu {

KernelPtr make_linear_cross_entropy_in(const SliceRule &slices, const KernelRequest &request, int team_size);

}  // namespace protrain::backend::cpu
