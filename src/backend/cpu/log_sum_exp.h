// log(sum(exp(x))) of a row of logits.
#pragma once

#include <cstdint>

namespace protrain::backend::cpu {

// Runs of a row are summed in float32, each in a fixed number of lanes, and the runs' sums in double.
inline constexpr std::int64_t kRun = 2048;
inline constexpr int kLanes = 32;

// Of x, a row of any float type (floats.h).
template <typename T>
double log_sum_exp(const T *x, std::int64_t count);
// Of x times `scale`, which is more than 0.
template <typename T>
double log_sum_exp_scaled(const T *x, std::int64_t count, float scale);

}  // namespace protrain::backend::cpu
