// Schedule: the learning rate as a function of the steps taken. It has no state: a resumed session goes on with it,
// because the number of steps is in the checkpoint.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace protrain::draft {

struct Schedule {
  enum class Kind : std::uint8_t {
    constant,
    linear,        // falls to `final_rate` by equal steps
    cosine,        // falls to `final_rate` along half a cosine
    step,          // is multiplied by `factor` after every `interval` steps
    inverse_sqrt,  // falls with the root of the step's number
  };
  Kind kind = Kind::constant;
  std::uint64_t warmup = 0;    // first steps, in which the rate rises: step n of them has n / warmup of the full rate
  std::uint64_t total = 0;     // linear, cosine: `final_rate` holds after so many steps, warm-up included
  double final_rate = 0;       // linear, cosine
  std::uint64_t interval = 1;  // step
  double factor = 1;           // step

  // Returns the learning rate of the step that comes after `steps` others. `full` is the rate that the schedule
  // reduces.
  double rate(double full, std::uint64_t steps) const {
    const auto number = static_cast<double>(steps + 1), rise = static_cast<double>(warmup);
    if (steps < warmup) return full * (number / rise);
    const auto after = static_cast<double>(steps - warmup);
    const double part = total > warmup ? std::min(1.0, after / static_cast<double>(total - warmup)) : 1;
    switch (kind) {
      case Kind::constant:
        break;
      case Kind::linear:
        return full + (final_rate - full) * part;
      case Kind::cosine:
        return final_rate + (full - final_rate) * (1 + std::cos(std::numbers::pi * part)) / 2;
      case Kind::step:
        return full * std::pow(factor, std::floor(after / static_cast<double>(interval)));
      case Kind::inverse_sqrt:
        return full * std::sqrt(std::max(1.0, rise) / number);
    }
    return full;
  }
};

}  // namespace protrain::draft
