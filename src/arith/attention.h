// The arithmetic of attention's gradient that is the same on all devices.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// Returns the factor of a score's gradient: p, or 0 if p is 1. The gradient is p (dp - delta), where p is the score's
// probability, dp the gradient of p, and delta the sum of p dp over the query's keys. If p is 1, delta is dp and the
// gradient is 0. Rounding may make the computed dp - delta differ from 0; the factor 0 keeps this error out of the
// gradient.
PROTRAIN_HD float weight_of_score(float p) { return p == 1.0f ? 0.0f : p; }

}  // namespace protrain::arith
