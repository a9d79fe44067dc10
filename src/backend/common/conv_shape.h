// The sizes of windows, and of Conv, ConvTranspose and ConvWeightGrad (ops/conv.cpp). These three operators have the
// same operands: x (N, C, d...), w (M, C / groups, k...) and y (N, M, output...). Conv computes y from x and w,
// ConvTranspose computes x from y and w, and ConvWeightGrad computes w from x and y.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "arith/math.h"
#include "backend/request.h"
#include "base/shape.h"

namespace protrain::backend {

// The number of spatial axes for which kernels are written. If a node's operands have fewer, kernels see axes of size 1
// in front of them.
inline constexpr int kConvAxes = 3;
using ConvSizes = std::array<std::int64_t, kConvAxes>;

// Windows that slide over the spatial axes of x (.., input...) and make y (.., output...).
struct WindowSizes {
  // Reads strides, dilations and pads from the node's attributes. `window` has the sizes of a window along the spatial
  // axes. Axes 0 and 1 of x and y are not spatial. Code::unsupported if there are no spatial axes, or more than
  // kConvAxes.
  WindowSizes(const KernelRequest &request, const Shape &x, const Shape &y, const Shape &window);

  std::int64_t input_count() const { return count_of(input); }  // elements of a channel of x
  std::int64_t kernel_count() const { return count_of(kernel); }
  std::int64_t output_count() const { return count_of(output); }  // elements of a channel of y
  static std::int64_t count_of(const ConvSizes &sizes) { return sizes[0] * sizes[1] * sizes[2]; }

  ConvSizes input, kernel, output, strides, dilations, before;  // before: pads in front of each axis
};

// The operands of a convolution. An array with an entry for each operand has its entries in this order.
enum class ConvOperand : std::uint8_t { x, w, y };

struct ConvShape : WindowSizes {
  explicit ConvShape(const KernelRequest &request);

  std::int64_t channels_in_group() const { return channels / groups; }
  std::int64_t maps_in_group() const { return maps / groups; }
  bool is_depthwise() const { return groups > 1 && groups == channels && groups == maps; }
  // Returns how many samples a kernel takes in one round: the largest divisor of `samples` for which a round takes at
  // most `round_bytes`, or 1 if a single sample takes more. Each sample takes `sample_bytes`. A round takes at most
  // `most` samples. All rounds are equal, because the number divides `samples`; a prime number of samples above `most`
  // gives rounds of one sample.
  std::int64_t samples_of_round(std::int64_t sample_bytes, std::int64_t round_bytes,
                                std::int64_t most = std::numeric_limits<std::int64_t>::max()) const;
  ConvOperand result;  // y of Conv, x of ConvTranspose, w of ConvWeightGrad
  DType dtype;
  bool bias;
  std::int64_t samples, groups, channels, maps;  // N, groups, C, M

 private:
  struct Operands {
    ConvOperand result;
    Shape x, w, y;
  };
  static Operands operands_of(const KernelRequest &request);
  ConvShape(const KernelRequest &request, const Operands &operands);
};

inline constexpr std::size_t kConvBias = 2;  // the bias's number among the inputs

}  // namespace protrain::backend
