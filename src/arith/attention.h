// Arithmetic that attention's gradient shares on all devices.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// The factor from a probability's gradient to its score's gradient: the probability. A key with all of a query's
// attention keeps it for any score, so its gradient is 0, not what rounding leaves of dp - delta.
PROTRAIN_HD float weight_of_score(float p) { return p == 1.0f ? 0.0f : p; }

}  // namespace protrain::arith
