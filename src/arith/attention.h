// What attention's gradient computes alike on every device.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// What the gradient of a probability is multiplied by to become that of its score: the probability. A key that has all
// of a query's attention keeps it whatever its score is: its gradient is 0, not what rounding leaves of dp - delta.
PROTRAIN_HD float weight_of_score(float p) { return p == 1.0f ? 0.0f : p; }

}  // namespace protrain::arith
