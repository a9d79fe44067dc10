// Arithmetic that attention's gradient shares on all devices.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// The gradient of a score is p (dp - delta): p is the score's probability, dp the gradient of p, and delta the sum of
// p dp over the query's keys. Returns the factor p to compute this gradient with, but 0 if p is 1: dp - delta would
// then be 0 exactly, and its rounding error must not count.
PROTRAIN_HD float weight_of_score(float p) { return p == 1.0f ? 0.0f : p; }

}  // namespace protrain::arith
