// What attention's gradient computes alike on every device.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// What the gradient of a probability is multiplied by to become that of its score: the probability. A key that has all
// of a query's attention keeps it whatever its score is: its gradient is 0, not what rounding leaves of dp - delta.
// `rounding`: by how much what is 1 may be off.
PROTRAIN_HD float weight_of_score(float p, float rounding = 0) { return absolute(p - 1.0f) <= rounding ? 0.0f : p; }

}  // namespace protrain::arith
