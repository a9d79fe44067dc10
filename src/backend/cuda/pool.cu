// MaxPool, AveragePool and their gradients. In forward, a thread computes the result of one window. In the gradient, a
// thread computes the gradient of one element of x. It sums over the windows that contain the element, in order. For
// MaxPool's gradient a first launch notes which element each window chose.
#include "backend/common/pool_shape.h"
#include "backend/common/scratch_layout.h"
#include "backend/cuda/windows.h"

namespace protrain::backend::cuda {

namespace {

struct Plane {
  std::int64_t number;
  Place at;
};
// Returns the plane of element i, and the element's place in this plane. A plane is one channel of one sample. It has
// `count` elements and the dimensions `sizes`.
__device__ inline Plane plane_of(std::int64_t i, std::int64_t count, const std::int64_t *sizes) {
  std::int64_t rest = 0;
  const std::int64_t number = divide(i, count, rest);
  return {number, place_of(rest, sizes)};
}

// Calls act(index) for each element of a window that is not a pad, in order. `index` is the element's index in its
// plane.
template <typename Act>
__device__ void each_reached(const Windows &w, const Place &window, Act act) {
  std::int64_t begin[kConvAxes];
  for (int axis = 0; axis < kConvAxes; ++axis) begin[axis] = window.at[axis] * w.strides[axis] - w.before[axis];
  for (std::int64_t a = 0; a < w.kernel[0]; ++a) {
    const std::int64_t i = begin[0] + a * w.dilations[0];
    for (std::int64_t b = 0; i >= 0 && i < w.input[0] && b < w.kernel[1]; ++b) {
      const std::int64_t j = begin[1] + b * w.dilations[1];
      for (std::int64_t c = 0; j >= 0 && j < w.input[1] && c < w.kernel[2]; ++c) {
        const std::int64_t k = begin[2] + c * w.dilations[2];
        if (k >= 0 && k < w.input[2]) act((i * w.input[1] + j) * w.input[2] + k);
      }
    }
  }
}

// Calls act(number, place) for each window that contains the element of x at place `p`. `number` is the window's index
// in its plane. The first call is for the window whose first element lies at `p`, the next one for the window whose
// second element lies there, and so on.
template <typename Act>
__device__ void each_window(const Windows &w, const Place &p, Act act) {
  for (std::int64_t a = 0; a < w.kernel[0]; ++a) {
    const std::int64_t first = window_at(w, 0, p.at[0], a);
    for (std::int64_t b = 0; first >= 0 && b < w.kernel[1]; ++b) {
      const std::int64_t second = window_at(w, 1, p.at[1], b);
      for (std::int64_t c = 0; second >= 0 && c < w.kernel[2]; ++c) {
        const std::int64_t third = window_at(w, 2, p.at[2], c);
        if (third >= 0) act((first * w.output[1] + second) * w.output[2] + third, Place{{first, second, third}});
      }
    }
  }
}

// The largest element of a window, and the index of this element in its plane. The index is -1 if all elements of the
// window are pads. A NaN is larger than any number.
struct Choice {
  float value = -INFINITY;
  std::int64_t at = -1;
};
template <typename T>
__device__ Choice choice_of(const Windows &w, const T *plane, const Place &window) {
  Choice best;
  each_reached(w, window, [&](std::int64_t at) {
    const float value = widened(plane[at]);
    if (best.at < 0 || value > best.value || value != value) best = {value, at};
  });
  return best;
}

// The pads of each axis that count as elements of an average. elements_of() returns the number of elements that a
// window's sum is divided by.
struct Counted {
  explicit Counted(const PoolShape &s) {
    for (int axis = 0; axis < kConvAxes; ++axis) {
      before[axis] = s.counted_before[static_cast<std::size_t>(axis)];
      after[axis] = s.counted_after[static_cast<std::size_t>(axis)];
    }
  }
  std::int64_t before[kConvAxes], after[kConvAxes];
};
__device__ inline float elements_of(const Windows &w, const Counted &counted, const Place &window) {
  std::int64_t all = 1;
  for (int axis = 0; axis < kConvAxes; ++axis) {
    std::int64_t count = 0;
    for (std::int64_t k = 0; k < w.kernel[axis]; ++k) {
      const std::int64_t at = window.at[axis] * w.strides[axis] + k * w.dilations[axis] - w.before[axis];
      count += at >= -counted.before[axis] && at < w.input[axis] + counted.after[axis] ? 1 : 0;
    }
    all *= count;
  }
  return static_cast<float>(all);
}

struct IndexSteps {
  std::int64_t at[kConvAxes];
};

template <typename T>
class Pool : public CudaKernel {
 public:
  explicit Pool(const KernelRequest &request) : shape_(request), windows_(shape_), counted_(shape_) {}

  void run(Stream stream, const Launch &launch) override {
    const std::int64_t count = shape_.planes * windows_.output_count;
    const T *x = input<T>(launch, 0);
    T *y = optional_output<T>(launch, 0);
    std::int64_t *indices = optional_output<std::int64_t>(launch, 1);
    const Windows w = windows_;
    if (!shape_.largest) {
      const Counted counted = counted_;
      return each(stream, count, [=] __device__(std::int64_t i) {
        const Plane window = plane_of(i, w.output_count, w.output);
        const T *plane = x + window.number * w.input_count;
        float sum = 0;
        each_reached(w, window.at, [&](std::int64_t at) { sum += widened(plane[at]); });
        y[i] = narrowed<T>(sum / elements_of(w, counted, window.at));
      });
    }
    const IndexSteps steps{{shape_.index_steps[0], shape_.index_steps[1], shape_.index_steps[2]}};
    each(stream, count, [=] __device__(std::int64_t i) {
      const Plane window = plane_of(i, w.output_count, w.output);
      const Choice best = choice_of(w, x + window.number * w.input_count, window.at);
      if (y != nullptr) y[i] = narrowed<T>(best.value);
      if (indices == nullptr) return;
      const Place p = place_of(best.at < 0 ? 0 : best.at, w.input);
      const std::int64_t index = p.at[0] * steps.at[0] + p.at[1] * steps.at[1] + p.at[2] * steps.at[2];
      indices[i] = best.at < 0 ? -1 : window.number * w.input_count + index;
    });
  }

 private:
  const PoolShape shape_;
  const Windows windows_;
  const Counted counted_;
};

template <typename T>
class PoolGrad : public CudaKernel {
 public:
  explicit PoolGrad(const KernelRequest &request) : shape_(request), windows_(shape_), counted_(shape_) {
    ScratchLayout layout;
    layout.take<std::int32_t>(shape_.largest ? shape_.planes * windows_.output_count : 0);
    scratch_bytes = layout.total();
  }

  void run(Stream stream, const Launch &launch) override {
    const std::int64_t count = shape_.planes * windows_.input_count;
    const T *dy = input<T>(launch, 0);
    T *dx = output<T>(launch, 0);
    const Windows w = windows_;
    if (!shape_.largest) {
      const Counted counted = counted_;
      return each(stream, count, [=] __device__(std::int64_t i) {
        const Plane element = plane_of(i, w.input_count, w.input);
        const T *plane = dy + element.number * w.output_count;
        float sum = 0;
        each_window(w, element.at, [&](std::int64_t number, const Place &window) {
          sum += widened(plane[number]) / elements_of(w, counted, window);
        });
        dx[i] = narrowed<T>(sum);
      });
    }
    const T *x = input<T>(launch, 1);
    auto *chosen = static_cast<std::int32_t *>(launch.scratch);
    each(stream, shape_.planes * w.output_count, [=] __device__(std::int64_t i) {
      const Plane window = plane_of(i, w.output_count, w.output);
      chosen[i] = static_cast<std::int32_t>(choice_of(w, x + window.number * w.input_count, window.at).at);
    });
    each(stream, count, [=] __device__(std::int64_t i) {
      const Plane element = plane_of(i, w.input_count, w.input);
      const std::int64_t first = element.number * w.output_count, own = i - element.number * w.input_count;
      float sum = 0;
      each_window(w, element.at, [&](std::int64_t number, const Place &) {
        if (chosen[first + number] == own) sum += widened(dy[first + number]);
      });
      dx[i] = narrowed<T>(sum);
    });
  }

 private:
  const PoolShape shape_;
  const Windows windows_;
  const Counted counted_;
};
}  // namespace

KernelPtr make_pool(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<Pool<T>>(request); });
}
KernelPtr make_pool_grad(const KernelRequest &request, DeviceState &) {
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<PoolGrad<T>>(request); });
}

}  // namespace protrain::backend::cuda
