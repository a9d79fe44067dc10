// The loss of one row of logits x, and its slopes, written once for all devices. With p = softmax(x) and
// lse = log(sum(exp(x))), a row's loss is
//     lse - (1 - smoothing) x[label] - smoothing mean(x) + z_loss lse^2
// Label smoothing gives that share of the target to all classes evenly, as in PyTorch. The z-loss keeps lse near 0.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

// A row's gradient is share p - rest, and less by `peak` at the label.
struct RowSlopes {
  float share, rest, peak;

  PROTRAIN_HD float of_log(float log_p) const { return share * exp(log_p) - rest; }
};

struct RowLoss {
  double smoothing = 0, z_loss = 0;

  // `mean`: of x, only read if labels are smoothed.
  PROTRAIN_HD double loss(double lse, double at_label, double mean) const {
    double loss = lse - at_label;
    if (smoothing != 0) loss += smoothing * (at_label - mean);
    if (z_loss != 0) loss += z_loss * lse * lse;
    return loss;
  }

  // `factor`: the gradient of the row's loss.
  PROTRAIN_HD RowSlopes slopes(float factor, float lse, std::int64_t classes) const {
    RowSlopes slopes{factor, 0, factor};
    if (z_loss != 0) slopes.share = factor * (1 + 2 * static_cast<float>(z_loss) * lse);
    if (smoothing != 0) {
      slopes.rest = factor * static_cast<float>(smoothing / static_cast<double>(classes));
      slopes.peak = factor * static_cast<float>(1 - smoothing);
    }
    return slopes;
  }
};

}  // namespace protrain::arith
