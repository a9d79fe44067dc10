// Connectionist temporal classification (Graves et al., 2006), written once for all devices. A path gives a class to
// each time. If equal neighbours of a path are joined and then blanks are removed, the labels that the path spells are
// left. So a path that spells a sample's labels goes through the states blank, label 0, blank, label 1, ..., blank. It
// begins in one of the first two states and ends in one of the last two. Probabilities are kept as logarithms, and
// log_add() adds them.
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
  // True if a path may go from state s - 2 to s. Both must be labels that differ. A path that skips the blank between
  // two equal labels would join them into one.
  PROTRAIN_HD bool skips_to(std::int64_t s) const { return s % 2 == 1 && s >= 3 && labels[s / 2] != labels[s / 2 - 1]; }
  // begin() returns the logarithm of 1 if a path may begin in state s, else the logarithm of 0. end() does the same for
  // the state in which a path ends.
  PROTRAIN_HD static double begin(std::int64_t s) { return s < 2 ? 0 : -INFINITY; }
  PROTRAIN_HD double end(std::int64_t s) const { return s + 2 >= count() ? 0 : -INFINITY; }
  // Returns the log of the sum of exp(before[i]) over the states i from which a path may come to s, which include s.
  PROTRAIN_HD double arriving(const double *before, std::int64_t s) const {
    double sum = before[s];
    if (s >= 1) sum = log_add(sum, before[s - 1]);
    return skips_to(s) ? log_add(sum, before[s - 2]) : sum;
  }
  // Returns the log of the sum of exp(after[i]) over the states i to which a path may go from s, which include s.
  PROTRAIN_HD double leaving(const double *after, std::int64_t s) const {
    double sum = after[s];
    if (s + 1 < count()) sum = log_add(sum, after[s + 1]);
    return s + 2 < count() && skips_to(s + 2) ? log_add(sum, after[s + 2]) : sum;
  }
  // Returns the log of the summed probability of all paths that spell the labels. last[s] is the log of the summed
  // probability of those that are in state s at the last time.
  PROTRAIN_HD double total(const double *last) const {
    return labels_count == 0 ? last[0] : log_add(last[count() - 1], last[count() - 2]);
  }
};

}  // namespace protrain::arith
