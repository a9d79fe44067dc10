// Windows that slide over spatial axes, as the kernels of convolutions and pools see them.
#pragma once

#include "backend/common/conv_shape.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

// The sizes of the windows, in the form that kernels take as an argument.
struct Windows {
  explicit Windows(const WindowSizes &s)
      : input_count(s.input_count()), kernel_count(s.kernel_count()), output_count(s.output_count()) {
    for (std::size_t i = 0; i < kConvAxes; ++i) {
      input[i] = s.input[i];
      kernel[i] = s.kernel[i];
      output[i] = s.output[i];
      strides[i] = s.strides[i];
      dilations[i] = s.dilations[i];
      before[i] = s.before[i];
    }
  }

  std::int64_t input_count, kernel_count, output_count;
  std::int64_t input[kConvAxes], kernel[kConvAxes], output[kConvAxes], strides[kConvAxes], dilations[kConvAxes],
      before[kConvAxes];
};

struct Place {
  std::int64_t at[kConvAxes];
};
__device__ inline Place place_of(std::int64_t index, const std::int64_t *sizes) {
  Place place{};
  PROTRAIN_UNROLL for (int axis = kConvAxes - 1; axis > 0; --axis) index = divide(index, sizes[axis], place.at[axis]);
  place.at[0] = index;
  return place;
}

// Returns the number of the window whose element `k` lies at place `p` of an axis. Returns -1 if there is no such
// window.
__device__ inline std::int64_t window_at(const Windows &w, int axis, std::int64_t p, std::int64_t k) {
  const std::int64_t begin = p + w.before[axis] - k * w.dilations[axis];
  if (begin < 0) return -1;
  std::int64_t rest = 0;
  const std::int64_t window = divide(begin, w.strides[axis], rest);
  return rest == 0 && window < w.output[axis] ? window : -1;
}

}  // namespace protrain::backend::cuda
