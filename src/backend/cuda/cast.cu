// Cast among float32, bfloat16, float64, int64, int32 and bool. A float outside an integer's range becomes the nearest
// integer, NaN becomes 0.
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
using Bool = std::uint8_t;  // no other uint8 is cast, and a bool read from a file may be any byte

template <typename To, typename From>
__device__ To converted(From value) {
  if constexpr (std::is_same_v<From, bf16>) {
    return converted<To>(widened(value));
  } else if constexpr (std::is_same_v<To, Bool>) {
    return value != 0;
  } else if constexpr (std::is_same_v<From, Bool>) {
    return converted<To>(value != 0 ? 1 : 0);
  } else if constexpr (std::is_same_v<To, bf16>) {
    if constexpr (std::is_same_v<From, double>) {
      // Rounded once: to odd first, so that what float32 cannot hold still decides between two bfloat16.
      auto nearest = static_cast<float>(value);
      auto bits = std::bit_cast<std::uint32_t>(nearest);
      if (static_cast<double>(nearest) != value && value == value && std::isfinite(nearest)) {
        if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
        bits |= 1;
      }
      return arith::to_bf16(std::bit_cast<float>(bits));
    } else {
      return converted<bf16>(static_cast<double>(value));
    }
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min()), kPast = -kLow;  // powers of two: exact
    const To inside = static_cast<To>(value >= kLow && value < kPast ? value : From{0});
    return value >= kPast ? std::numeric_limits<To>::max() : (value < kLow ? std::numeric_limits<To>::min() : inside);
  } else {
    return static_cast<To>(value);
  }
}
template <>
__device__ bf16 converted<bf16, float>(float value) {
  return arith::to_bf16(value);
}
template <>
__device__ bf16 converted<bf16, bf16>(bf16 value) {
  return value;
}

template <typename From, typename To>
class Cast : public CudaKernel {
 public:
  explicit Cast(const KernelRequest &request) : count_(element_count(request.outputs[0].shape)) {}

  void run(Stream stream, const Launch &launch) override {
    const From *x = input<From>(launch, 0);
    To *y = output<To>(launch, 0);
    each(stream, count_, [x, y] __device__(std::int64_t i) { y[i] = converted<To>(x[i]); });
  }

 private:
  const std::int64_t count_;
};

template <typename Make>
Made by_type(const KernelRequest &request, DType dtype, Make make) {
  switch (dtype) {
    case DType::f32:
      return make(float{});
    case DType::bf16:
      return make(bf16{});
    case DType::f64:
      return make(double{});
    case DType::i64:
      return make(std::int64_t{});
    case DType::i32:
      return make(std::int32_t{});
    case DType::boolean:
      return make(Bool{});
    default:
      fail(Code::unsupported, subject(request), "cuda casts float32, bfloat16, float64, int64, int32 and bool, not {}",
           name_of(dtype));
  }
}
}  // namespace

Made make_cast(const KernelRequest &request, Site &) {
  return by_type(request, request.inputs.at(0).dtype, [&]<typename From>(From) {
    return by_type(request, request.outputs[0].dtype,
                   [&]<typename To>(To) -> Made { return std::make_unique<Cast<From, To>>(request); });
  });
}

}  // namespace protrain::backend::cuda
