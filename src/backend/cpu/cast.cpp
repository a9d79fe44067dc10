// Cast among float32, bfloat16, float16, float64, int64, int32 and bool.
#include "arith/cast.h"

#include <algorithm>
#include <array>

#include "backend/cpu/elementwise.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
using Convert = void (*)(const void *from, void *to, std::int64_t count);

using arith::Bool;

template <typename From, typename To>
struct Loops {
  PROTRAIN_CLONES static void convert(const void *from, void *to, std::int64_t count) {
    const From *x = static_cast<const From *>(from);
    To *y = static_cast<To *>(to);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = arith::converted<To>(x[i]);
  }
};

// The types, in the order of the rows and columns of kConverts.
constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i64, DType::i32, DType::boolean};
template <typename From, typename... To>
constexpr std::array<Convert, sizeof...(To)> kRow = {Loops<From, To>::convert...};
template <typename... T>
constexpr std::array<std::array<Convert, sizeof...(T)>, sizeof...(T)> kTable = {kRow<T, T...>...};
constexpr auto kConverts = kTable<float, bf16, f16, double, std::int64_t, std::int32_t, Bool>;
static_assert(kConverts.size() == std::size(kTypes));

std::size_t place_of(const KernelRequest &request, DType dtype) {
  const DType *found = std::find(std::begin(kTypes), std::end(kTypes), dtype);
  require(found != std::end(kTypes), Code::unsupported, subject(request),
          "the cpu casts float32, bfloat16, float16, float64, int64, int32 and bool, not {}", name_of(dtype));
  return static_cast<std::size_t>(found - kTypes);
}

class CastKernel : public CpuKernel {
 public:
  explicit CastKernel(const KernelRequest &request)
      : convert_(kConverts[place_of(request, request.inputs[0].dtype)][place_of(request, request.outputs[0].dtype)]),
        count_(element_count(request.outputs[0].shape)),
        from_bytes_(element_bytes(request.inputs[0])),
        to_bytes_(element_bytes(request.outputs[0])) {}

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

KernelPtr make_cast(const KernelRequest &request, int) { return std::make_unique<CastKernel>(request); }

}  // namespace protrain::backend::cpu
