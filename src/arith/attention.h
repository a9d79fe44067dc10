// Arithmetic that attention's gradient shares on all devices.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// The factor from a probability's gradient to its score's gradient: the probability. A key that has all of a query's
// attention keeps it whatever its score is. Its gradient is therefore 0, not what rounding leaves of dp - delta.
PROTRAIN_HD float weight_of_score(float p) { return p == 1.0f ? 0.0f : p; }

}  // namespace protrain::arith
