// Cast among float32, float64, int64, int32 and bool. A float outside an integer's range becomes the nearest integer,
// NaN becomes 0.
#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include "backend/cpu/elementwise.h"

namespace protrain::backend {

namespace {
using Convert = void (*)(const void *from, void *to, std::int64_t count);

using Bool = std::uint8_t;  // no other uint8 is cast, and a bool read from a file may be any byte

template <typename To, typename From>
PROTRAIN_INLINE To converted(From value) {
  if constexpr (std::is_same_v<To, Bool>) {
    return value != 0;
  } else if constexpr (std::is_same_v<From, Bool>) {
    return static_cast<To>(value != 0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    constexpr From kLow = static_cast<From>(std::numeric_limits<To>::min()), kPast = -kLow;  // powers of two: exact
    const To inside = static_cast<To>(value >= kLow && value < kPast ? value : From{0});
    return value >= kPast ? std::numeric_limits<To>::max() : (value < kLow ? std::numeric_limits<To>::min() : inside);
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
void convert(const void *from, void *to, std::int64_t count) {
  const From *x = static_cast<const From *>(from);
  To *y = static_cast<To *>(to);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) y[i] = converted<To>(x[i]);
}

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::i64, DType::i32, DType::boolean};

template <typename From>
constexpr std::array<Convert, 5> kTo = {convert<From, float>, convert<From, double>, convert<From, std::int64_t>,
                                        convert<From, std::int32_t>, convert<From, Bool>};
constexpr std::array<std::array<Convert, 5>, 5> kConverts = {kTo<float>, kTo<double>, kTo<std::int64_t>,
                                                             kTo<std::int32_t>, kTo<Bool>};

std::size_t place_of(const KernelRequest &request, DType dtype) {
  const DType *found = std::find(std::begin(kTypes), std::end(kTypes), dtype);
  require(found != std::end(kTypes), Code::unsupported, subject(request),
          "the cpu casts float32, float64, int64, int32 and bool, not {}", name_of(dtype));
  return static_cast<std::size_t>(found - kTypes);
}

class CastKernel : public CpuKernel {
 public:
  explicit CastKernel(const KernelRequest &request)
      : convert_(kConverts[place_of(request, request.inputs[0].dtype)][place_of(request, request.outputs[0].dtype)]),
        count_(element_count(request.outputs[0].shape)),
        from_bytes_(static_cast<std::int64_t>(size_of(request.inputs[0].dtype))),
        to_bytes_(static_cast<std::int64_t>(size_of(request.outputs[0].dtype))) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(count_, kElementGrain, member);
    convert_(input<std::byte>(launch, 0) + mine.begin * from_bytes_,
             output<std::byte>(launch, 0) + mine.begin * to_bytes_, mine.size());
  }

 private:
  const Convert convert_;
  const std::int64_t count_, from_bytes_, to_bytes_;
};
}  // namespace

std::unique_ptr<CpuKernel> make_cast(const KernelRequest &request, int) {
  return std::make_unique<CastKernel>(request);
}

}  // namespace protrain::backend
