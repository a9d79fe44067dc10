// Connectionist temporal classification (CTC; Graves et al., 2006), written once for all devices. A path gives a class
// to each time. To read the labels that a path spells, join its equal neighbours and then remove the blanks. So a path
// that spells a sample's labels goes through the states blank, label 0, blank, label 1, ..., blank. It begins in one of
// the first two states and ends in one of the last two. Probabilities are kept as logarithms, and log_add() adds them.
#pragma once

#include <cmath>
#include <cstdint>

#include "arith/math.h"

namespace protrain::arith {

// Returns log(exp(a) + exp(b)).
PROTRAIN_HD double log_add(double a, double b) {
  if (a == -INFINITY) return b;
  if (b == -INFINITY) return a;
  return (a > b ? a : b) + ::log1p(::exp(-::fabs(a - b)));
}

struct CtcStates {
  const std::int64_t *labels;
  std::int64_t labels_count, blank;

  PROTRAIN_HD std::int64_t count() const { return 2 * labels_count + 1; }
  PROTRAIN_HD std::int64_t class_of(std::int64_t s) const { return s % 2 == 1 ? labels[s / 2] : blank; }
  // True if a path can go from state s - 2 to s and skip the blank between them. Both states must be labels, and the
  // labels must differ: two equal labels without a blank between them would be joined into one.
  PROTRAIN_HD bool skips_to(std::int64_t s) const { return s % 2 == 1 && s >= 3 && labels[s / 2] != labels[s / 2 - 1]; }
  // begin() returns 0, the logarithm of 1, if a path can begin in state s, and -infinity, the logarithm of 0, if not.
  // end() says in the same way whether a path can end in state s.
  PROTRAIN_HD static double begin(std::int64_t s) { return s < 2 ? 0 : -INFINITY; }
  PROTRAIN_HD double end(std::int64_t s) const { return s + 2 >= count() ? 0 : -INFINITY; }
  // Returns the log of the sum of exp(before[i]) over all states i from which a path can come to s. One of them is s
  // itself.
  PROTRAIN_HD double arriving(const double *before, std::int64_t s) const {
    double sum = before[s];
    if (s >= 1) sum = log_add(sum, before[s - 1]);
    return skips_to(s) ? log_add(sum, before[s - 2]) : sum;
  }
  // Returns the log of the sum of exp(after[i]) over all states i to which a path can go from s. One of them is s
  // itself.
  PROTRAIN_HD double leaving(const double *after, std::int64_t s) const {
    double sum = after[s];
    if (s + 1 < count()) sum = log_add(sum, after[s + 1]);
    return s + 2 < count() && skips_to(s + 2) ? log_add(sum, after[s + 2]) : sum;
  }
  // Returns the log of the summed probability of all paths that spell the labels. last[s] is the log of the summed
  // probability of the paths that are in state s at the last time.
  PROTRAIN_HD double total(const double *last) const {
    return labels_count == 0 ? last[0] : log_add(last[count() - 1], last[count() - 2]);
  }
};

}  // namespace protrain::arith
