// The arithmetic of attention's masks and gradient that is the same on all devices.
#pragma once

#include <cmath>

#include "arith/math.h"

namespace protrain::arith {

// The lowest score that a finite bias gives. Its exponential is 0 beside that of any usual score, so the key is hidden.
//   If all keys of a query are hidden like this, the query averages over them, each with probability 1 / n. Backward
// computes the probabilities again, as exp(score - lse), where lse = score + log n is rounded to float32. At -1e5 the
// rounding changes the probabilities by less than 2 %. At scores of -1e9 or less, log n would be lost, and each
// probability would be 1.
inline constexpr float kLeastScore = -1e5f;

// Returns the lowest score that this bias gives: kLeastScore, or -inf if the bias is -inf.
template <typename T>
PROTRAIN_HD T least_score(T bias) {
  return bias == -INFINITY ? bias : T{kLeastScore};
}
// Returns a score with its bias.
PROTRAIN_HD float biased(float score, float bias) {
  const float sum = score + bias, least = least_score(bias);
  return sum < least ? least : sum;  // written so that NaN stays NaN
}

// Returns the factor of a score's gradient: p, or 0 if p is 1 or the score is kLeastScore. The gradient is
// p (dp - delta), where p is the score's probability, dp the gradient of p, and delta the sum of p dp over the query's
// keys. If p is 1, delta is dp and the gradient is 0. Rounding may make the computed dp - delta differ from 0; the
// factor 0 keeps this error out of the gradient. kLeastScore depends neither on the query nor on the key, so nothing
// passes through it.
PROTRAIN_HD float weight_of_score(float p, float score) {
  const float weight = p == 1.0f ? 0.0f : p;
  return score == kLeastScore ? 0.0f : weight;
}

}  // namespace protrain::arith
