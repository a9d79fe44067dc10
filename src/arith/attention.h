// Arithmetic that attention's gradient shares on all devices.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// Returns p, the factor in the gradient p (dp - delta) of a score. p is the score's probability, dp the gradient of p,
// and delta the sum of p dp over the query's keys. If p is 1, dp - delta is 0 but for rounding. The factor is then 0,
// so that the rounding error does not count.
PROTRAIN_HD float weight_of_score(float p) { return p == 1.0f ? 0.0f : p; }

}  // namespace protrain::arith
