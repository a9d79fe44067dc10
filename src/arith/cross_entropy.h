// The cross entropy of one row of logits x, and its gradient, written once for all devices. With p = softmax(x) and
// lse = log(sum(exp(x))), a row's loss is
//     lse - (1 - smoothing) x[label] - smoothing mean(x) + z_loss lse^2
// Label smoothing spreads the share `smoothing` of the target evenly over all classes, as in PyTorch. The z-loss keeps
// lse near 0. With `focal`, and without smoothing and z-loss, the loss is (1 - p[label])^focal (lse - x[label]): rows
// whose label is already likely count for less (Lin et al., arXiv 1708.02002).
#pragma once

#include <cmath>

#include "arith/math.h"

namespace protrain::arith {

// The gradient of a row's loss, as three numbers. The gradient with respect to the logit of a class with probability p
// is share * p - rest. If the class is the label, `peak` is subtracted too.
struct RowSlopes {
  float share, rest, peak;

  PROTRAIN_HD float of_log(float log_p) const { return share * exp(log_p) - rest; }
};

struct RowLoss {
  double smoothing = 0, z_loss = 0, focal = 0;

  // Returns a row's loss. `mean` is the mean of x. It is read only if labels are smoothed.
  PROTRAIN_HD double loss(double lse, double at_label, double mean) const {
    double loss = lse - at_label;
    if (focal != 0) return std::pow(unlikely(loss), focal) * loss;
    if (smoothing != 0) loss += smoothing * (at_label - mean);
    if (z_loss != 0) loss += z_loss * lse * lse;
    return loss;
  }

  // Returns the gradient of a row. `factor` is the gradient of the row's loss, and `at_label` is x[label].
  PROTRAIN_HD RowSlopes slopes(float factor, float lse, float at_label, std::int64_t classes) const {
    if (focal != 0) factor *= static_cast<float>(focus(static_cast<double>(lse) - static_cast<double>(at_label)));
    RowSlopes slopes{factor, 0, factor};
    if (z_loss != 0) slopes.share = factor * (1 + 2 * static_cast<float>(z_loss) * lse);
    if (smoothing != 0) {
      slopes.rest = factor * static_cast<float>(smoothing / static_cast<double>(classes));
      slopes.peak = factor * static_cast<float>(1 - smoothing);
    }
    return slopes;
  }

  // Returns the derivative of a row's focal loss with respect to the row's cross entropy.
  PROTRAIN_HD double focus(double cross_entropy) const {
    const double rest = unlikely(cross_entropy);
    if (rest <= 0) return 0;
    return std::pow(rest, focal) * (1 + focal * std::exp(-cross_entropy) * cross_entropy / rest);
  }
  // Returns 1 - p, where p = exp(-cross_entropy). Returns at least 0, because the cross entropy may be rounded below 0.
  PROTRAIN_HD static double unlikely(double cross_entropy) {
    return cross_entropy > 0 ? -std::expm1(-cross_entropy) : 0;
  }
};

}  // namespace protrain::arith
