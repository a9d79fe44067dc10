// log(sum(exp(x))) of a row of logits.
#pragma once

#include <cstdint>

namespace protrain::backend::cpu {

// The exponentials of a row are summed in runs of kRun elements. Each run is summed in float32, in kLanes lanes, and
// the sums of the runs are added in double.
inline constexpr std::int64_t kRun = 2048;
inline constexpr int kLanes = 32;

// Returns log(sum(exp(x))) of x, a row of any float type (floats.h).
template <typename T>
double log_sum_exp(const T *x, std::int64_t count);
// Returns log(sum(exp(x * scale))). `scale` is more than 0.
template <typename T>
double log_sum_exp_scaled(const T *x, std::int64_t count, float scale);

}  // namespace protrain::backend::cpu
