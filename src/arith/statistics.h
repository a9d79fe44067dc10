// Means and variances of batch normalization: the statistics of a batch, and the running statistics. Written once for
// all devices.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// The mean of `count` elements, and the sum of their squared distances from it.
struct Moments {
  double count = 0, mean = 0, squares = 0;

  // Adds the elements of `other`. This object then holds the moments of all elements together.
  PROTRAIN_HD void join(const Moments &other) {
    if (other.count == 0) return;
    const double all = count + other.count, distance = other.mean - mean;
    mean += distance * other.count / all;
    squares += other.squares + distance * distance * count * other.count / all;
    count = all;
  }
};

// The weights of a running statistic: `momentum` for its old value, and `rest` for the new batch. `rest` is
// 1 - momentum, rounded once.
struct Momentum {
  float momentum, rest;
};

inline Momentum momentum_of(double momentum) {
  return {static_cast<float>(momentum), static_cast<float>(1 - momentum)};
}

// Returns the running statistic after one more batch, whose own statistic is `batch`.
PROTRAIN_HD float folded(const Momentum &m, float running, float batch) {
  return m.momentum * running + m.rest * batch;
}

}  // namespace protrain::arith
