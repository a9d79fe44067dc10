// Conv, ConvTranspose and ConvWeightGrad, computed as matrix products (im2col). A sample's windows are unrolled into a
// matrix (C * K, windows), called its columns. It has a row for each of the K elements of a window in each of the C
// channels, and a column for each window. Then y = w columns, the columns of dx are w^T dy, and dw = dy columns^T. The
// samples are unrolled in equal rounds of at most kColumnsBytes and kMostBatch samples. With a 1 x 1 x 1 kernel, stride
// 1 and no padding, x itself is the columns.
#include <numeric>

#include "backend/common/scratch_layout.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/windows.h"

namespace protrain::backend::cuda {

namespace {

constexpr std::int64_t kColumnsBytes = kEmulated ? 4 << 10 : 64 << 20;

// Returns element i of the columns (channels, elements of a window, windows), into which x is unrolled: an element of
// x, or zero for a pad.
template <typename T>
__device__ T unrolled(const Windows &w, const T *x, std::int64_t i) {
  std::int64_t window = 0, element = 0;
  const std::int64_t channel = divide(divide(i, w.output_count, window), w.kernel_count, element);
  const Place o = place_of(window, w.output), k = place_of(element, w.kernel);
  std::int64_t at = channel;
  for (int axis = 0; axis < kConvAxes; ++axis) {
    const std::int64_t p = o.at[axis] * w.strides[axis] + k.at[axis] * w.dilations[axis] - w.before[axis];
    if (p < 0 || p >= w.input[axis]) return narrowed<T>(0.0f);
    at = at * w.input[axis] + p;
  }
  return x[at];
}

// Returns the sum of the elements of `columns` that come from element i of x (channels, d...). This is col2im.
__device__ inline float rolled_up(const Windows &w, const float *columns, std::int64_t i) {
  std::int64_t position = 0;
  const std::int64_t channel = divide(i, w.input_count, position);
  const Place p = place_of(position, w.input);
  const float *row = columns + channel * w.kernel_count * w.output_count;
  float sum = 0;
  for (std::int64_t a = 0; a < w.kernel[0]; ++a) {
    const std::int64_t first = window_at(w, 0, p.at[0], a);
    for (std::int64_t b = 0; first >= 0 && b < w.kernel[1]; ++b) {
      const std::int64_t second = window_at(w, 1, p.at[1], b);
      for (std::int64_t c = 0; second >= 0 && c < w.kernel[2]; ++c) {
        const std::int64_t third = window_at(w, 2, p.at[2], c);
        if (third < 0) continue;
        const std::int64_t element = (a * w.kernel[1] + b) * w.kernel[2] + c;
        sum += row[element * w.output_count + (first * w.output[1] + second) * w.output[2] + third];
      }
    }
  }
  return sum;
}

template <typename T>
void unroll(Stream stream, const Windows &windows, std::int64_t count, const T *x, T *columns) {
  each(stream, count, [x, columns, windows] __device__(std::int64_t i) { columns[i] = unrolled(windows, x, i); });
}

// The bias of each channel. `at` is nullptr if there is no bias.
template <typename T>
struct ChannelBias {
  const T *at;
  std::int64_t channels;
};

// Computes `count` elements of x: each is the sum of the elements of `columns` that come from it, plus the bias.
template <typename T>
void roll_up(Stream stream, const Windows &windows, std::int64_t count, const float *columns, ChannelBias<T> bias,
             T *x) {
  each(stream, count, [x, bias, columns, windows] __device__(std::int64_t i) {
    const float added = bias.at == nullptr ? 0.0f : widened(bias.at[i / windows.input_count % bias.channels]);
    x[i] = narrowed<T>(rolled_up(windows, columns, i) + added);
  });
}

// Fills a tensor (samples, channels, elements) with the bias of its channels.
template <typename T>
void fill(Stream stream, std::int64_t samples, std::int64_t channels, std::int64_t elements, const T *bias, T *to) {
  each(stream, samples * channels * elements,
       [bias, to, channels, elements] __device__(std::int64_t i) { to[i] = bias[i / elements % channels]; });
}

template <typename T>
void store(Stream stream, std::int64_t count, const float *from, T *to) {
  each(stream, count, [from, to] __device__(std::int64_t i) { to[i] = narrowed<T>(from[i]); });
}

// True for a 1 x 1 x 1 kernel with stride 1 and no padding. Then x itself is the matrix of unrolled windows.
bool is_matrix(const ConvShape &s) {
  return s.kernel_count() == 1 && s.input == s.output && s.strides == ConvSizes{1, 1, 1} &&
         s.before == ConvSizes{0, 0, 0};
}

// Returns the shape of the matrix products of a round. A round consists of the samples that are unrolled together. For
// Conv and ConvTranspose without groups, one launch multiplies all samples of the round. With groups, and for
// ConvWeightGrad, a launch multiplies the groups of one sample. `columns` is the element type of the matrix of unrolled
// windows.
GemmShape product_of(const ConvShape &s, std::int64_t samples, DType columns) {
  const std::int64_t row = s.channels_in_group() * s.kernel_count(), windows = s.output_count();
  const std::int64_t of_w = s.maps_in_group() * row, of_y = s.maps_in_group() * windows, of_columns = row * windows;
  GemmShape p{.m = s.maps_in_group(),
              .n = windows,
              .k = row,
              .in = s.dtype,
              .out = s.dtype,
              .batch = s.groups,
              .stride_a = of_w,
              .stride_b = of_columns,
              .stride_c = of_y};
  if (s.result == ConvOperand::y) p.accumulate = s.bias;
  if (s.result == ConvOperand::x)
    p = {.m = row,
         .n = windows,
         .k = s.maps_in_group(),
         .trans_a = true,
         .accumulate = is_matrix(s) && s.bias,
         .in = s.dtype,
         .out = columns,
         .batch = s.groups,
         .stride_a = of_w,
         .stride_b = of_y,
         .stride_c = of_columns};
  if (s.result == ConvOperand::w)
    p = {.m = s.maps_in_group(),
         .n = row,
         .k = windows,
         .trans_b = true,
         .accumulate = true,
         .in = s.dtype,
         .out = DType::f32,
         .batch = s.groups,
         .stride_a = of_y,
         .stride_b = of_columns,
         .stride_c = of_w};
  if (s.result != ConvOperand::w && s.groups == 1) {
    p.batch = samples;
    p.stride_a = 0;
  }
  const auto narrowest = static_cast<std::int64_t>(std::min(size_of(p.in), size_of(p.out)));
  std::int64_t steps = kAlignment / narrowest;  // elements
  for (std::int64_t step : {of_w, of_y, of_columns})
    if (s.samples * s.groups > 1) steps = std::gcd(steps, step);
  p.alignment = static_cast<std::uint64_t>(steps * narrowest);
  return p;
}

template <typename T>
class Conv : public CudaKernel {
 public:
  Conv(const KernelRequest &request, const ConvShape &s, DeviceState &device)
      : shape_(s),
        windows_(s),
        in_place_(is_matrix(s)),
        column_bytes_(s.result == ConvOperand::x && !in_place_ ? sizeof(float) : sizeof(T)),
        columns_(s.channels * s.kernel_count() * s.output_count()),
        samples_(s.samples_of_round(in_place_ ? 0 : columns_ * static_cast<std::int64_t>(column_bytes_), kColumnsBytes,
                                    kMostBatch)),
        gemm_(device.blas, product_of(s, samples_, column_bytes_ == sizeof(float) ? DType::f32 : s.dtype)) {
    require_dtype(request, request.inputs.at(1), s.dtype);
    ScratchLayout layout;
    columns_at_ = layout.bytes(in_place_ ? 0 : static_cast<std::uint64_t>(samples_ * columns_) * column_bytes_);
    const std::int64_t weights = s.maps * s.channels_in_group() * s.kernel_count();
    sums_at_ = layout.take<float>(s.result == ConvOperand::w && sizeof(T) < sizeof(float) ? weights : 0);
    gemm_at_ = layout.total();
    scratch_bytes = gemm_at_ + gemm_.scratch_bytes();
  }

  int variant_count() const override { return gemm_.variant_count(); }
  void use_variant(int variant) override {
    gemm_.use_variant(variant);
    scratch_bytes = gemm_at_ + gemm_.scratch_bytes();
  }

  void run(Stream stream, const Launch &launch) override {
    if (shape_.result == ConvOperand::w) return run_weights(stream, launch);
    const bool makes_y = shape_.result == ConvOperand::y;
    if (shape_.bias && (makes_y || in_place_))
      fill(stream, shape_.samples, makes_y ? shape_.maps : shape_.channels,
           makes_y ? windows_.output_count : windows_.input_count, input<T>(launch, kConvBias), output<T>(launch, 0));
    for (std::int64_t first = 0; first < shape_.samples; first += samples_) {
      const T *w = input<T>(launch, 1);
      if (makes_y) {
        const T *columns = columns_of(stream, launch, first);
        T *y = output<T>(launch, 0) + first * of_y();
        multiply(stream, launch, [=, this](std::int64_t i) {
          return GemmOperands{w, columns + i * columns_, y + i * of_y()};
        });
        continue;
      }
      const T *dy = input<T>(launch, 0) + first * of_y();
      T *x = output<T>(launch, 0) + first * of_x();
      std::byte *columns = in_place_ ? reinterpret_cast<std::byte *>(x) : scratch(launch, columns_at_);
      const std::int64_t step = columns_ * static_cast<std::int64_t>(column_bytes_);
      multiply(stream, launch, [=, this](std::int64_t i) {
        return GemmOperands{w, dy + i * of_y(), columns + i * step};
      });
      if (!in_place_)
        roll_up(stream, windows_, samples_ * of_x(), reinterpret_cast<const float *>(columns),
                ChannelBias<T>{optional_input<T>(launch, kConvBias), shape_.channels}, x);
    }
  }

 private:
  std::int64_t of_x() const { return shape_.channels * windows_.input_count; }
  std::int64_t of_y() const { return shape_.maps * windows_.output_count; }
  static std::byte *scratch(const Launch &launch, std::uint64_t at) {
    return static_cast<std::byte *>(launch.scratch) + at;
  }

  // Runs the products of a round of samples: one launch for the whole round, or one for each sample if there are
  // groups.
  template <typename Operands>
  void multiply(Stream stream, const Launch &launch, Operands operands_of) const {
    for (std::int64_t i = 0; i < (shape_.groups == 1 ? 1 : samples_); ++i)
      gemm_.run(stream, operands_of(i), scratch(launch, gemm_at_));
  }

  // Returns the columns of the round that begins with sample `first`. These are x itself if in_place_ is set. Otherwise
  // x is unrolled into scratch.
  const T *columns_of(Stream stream, const Launch &launch, std::int64_t first) const {
    const T *x = input<T>(launch, 0) + first * of_x();
    if (in_place_) return x;
    T *columns = reinterpret_cast<T *>(scratch(launch, columns_at_));
    unroll(stream, windows_, samples_ * columns_, x, columns);
    return columns;
  }

  // Adds up the products of all samples, in order, in float32.
  void run_weights(Stream stream, const Launch &launch) {
    const std::int64_t count = shape_.maps * shape_.channels_in_group() * windows_.kernel_count;
    T *dw = output<T>(launch, 0);
    void *sums = std::is_same_v<T, float> ? static_cast<void *>(dw) : scratch(launch, sums_at_);
    clear(stream, sums, static_cast<std::uint64_t>(count) * sizeof(float));
    for (std::int64_t first = 0; first < shape_.samples; first += samples_) {
      const T *columns = columns_of(stream, launch, first), *dy = input<T>(launch, 1) + first * of_y();
      for (std::int64_t i = 0; i < samples_; ++i)
        gemm_.run(stream, {dy + i * of_y(), columns + i * columns_, sums}, scratch(launch, gemm_at_));
    }
    if (sums != dw) store(stream, count, static_cast<const float *>(sums), dw);
  }

  const ConvShape shape_;
  const Windows windows_;
  const bool in_place_;
  const std::size_t column_bytes_;  // of one element
  const std::int64_t columns_;      // elements of a sample's columns
  const std::int64_t samples_;      // of a round
  Gemm gemm_;
  std::uint64_t columns_at_, sums_at_, gemm_at_;
};
}  // namespace

KernelPtr make_conv(const KernelRequest &request, DeviceState &device) {
  const ConvShape shape(request);
  return by_float(request, request.inputs.at(0),
                  [&]<typename T>(T) -> KernelPtr { return std::make_unique<Conv<T>>(request, shape, device); });
}

}  // namespace protrain::backend::cuda
