#include "backend/cpu/log_sum_exp.h"

#include <algorithm>
#include <cmath>

#include "arith/math.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
struct Scaled {
  float scale;
  PROTRAIN_HD float operator()(float x) const { return x * scale; }
};
struct Unscaled {
  PROTRAIN_HD float operator()(float x) const { return x; }
};

template <typename T, typename Scale = Unscaled>
struct Loops {
  PROTRAIN_CLONES static float largest(const T *x, std::int64_t count) {
    float lanes[kLanes];
    std::fill_n(lanes, kLanes, -HUGE_VALF);
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] = widened(x[i + l]) > lanes[l] ? widened(x[i + l]) : lanes[l];
    for (; i < count; ++i) lanes[0] = widened(x[i]) > lanes[0] ? widened(x[i]) : lanes[0];
    return *std::max_element(lanes, lanes + kLanes);
  }
  PROTRAIN_CLONES static float sum_of_exp(const T *x, std::int64_t count, float shift, Scale scaled) {
    float lanes[kLanes] = {};
    std::int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes)
      for (int l = 0; l < kLanes; ++l) lanes[l] += arith::exp(scaled(widened(x[i + l])) - shift);
    for (int l = 0; i < count; ++i, ++l) lanes[l] += arith::exp(scaled(widened(x[i])) - shift);
    for (int width = kLanes / 2; width > 0; width /= 2)
      for (int l = 0; l < width; ++l) lanes[l] += lanes[l + width];
    return lanes[0];
  }
};

template <typename T, typename Scale>
double sum_in_runs(const T *x, std::int64_t count, Scale scaled) {
  const float shift = scaled(Loops<T>::largest(x, count));
  double sum = 0;
  for (std::int64_t i = 0; i < count; i += kRun)
    sum += Loops<T, Scale>::sum_of_exp(x + i, std::min(kRun, count - i), shift, scaled);
  return shift + std::log(sum);
}
}  // namespace

template <typename T>
double log_sum_exp(const T *x, std::int64_t count) {
  return sum_in_runs(x, count, Unscaled{});
}

template <typename T>
double log_sum_exp_scaled(const T *x, std::int64_t count, float scale) {
  return sum_in_runs(x, count, Scaled{scale});
}

template double log_sum_exp(const float *x, std::int64_t count);
template double log_sum_exp(const bf16 *x, std::int64_t count);
template double log_sum_exp(const f16 *x, std::int64_t count);
template double log_sum_exp_scaled(const float *x, std::int64_t count, float scale);
template double log_sum_exp_scaled(const bf16 *x, std::int64_t count, float scale);
template double log_sum_exp_scaled(const f16 *x, std::int64_t count, float scale);

}  // namespace protrain::backend::cpu
