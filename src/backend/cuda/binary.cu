// Broadcasting arithmetic, comparison and logic; Where.
#include <algorithm>

#include "arith/binary.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
using namespace arith::binary;

struct Pow {
  PROTRAIN_HD static float of(float a, float b) {
    if (b == 2) return a * a;
    if (b == 3) return a * a * a;
    return ::powf(a, b);
  }
};

// Computes y[i] = op(a[i], b[i]) with broadcasting, in packs of kCount elements. The walk goes from pack to pack.
template <int kCount, typename Op, typename A, typename B, typename R>
__global__ void binary_kernel(Walk<2> walk, const A *a, const B *b, R *y, std::int64_t packs) {
  const bool a_repeats = repeats(walk, 0), b_repeats = repeats(walk, 1);
  for (std::int64_t p = thread_index(); p < packs; p += thread_count()) {
    const Offsets<2> from = offsets_of(walk, p);
    const Pack<A, kCount> left = load_or_repeat<kCount>(a + from.at[0], a_repeats);
    const Pack<B, kCount> right = load_or_repeat<kCount>(b + from.at[1], b_repeats);
    store<kCount>(y + p * kCount,
                  rounded_pack<R, kCount>([&](int j) { return Op::of(operand(left.at[j]), operand(right.at[j])); }));
  }
}

template <typename T>
__global__ void zeros_kernel(const T *divisors, std::int64_t count, Note to) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count())
    if (divisors[i] == 0) note(to, 0, i);
}

Layout<2> layout_of(const KernelRequest &request) {
  Layout<2> layout{request.outputs[0].shape, {}};
  for (std::size_t n : {0, 1})
    layout.strides[n] = broadcast_strides(request.inputs[n].shape, layout.dims, subject(request));
  return merged(layout, subject(request));
}

template <typename Op, typename A, typename B, typename R>
class Binary : public CudaKernel {
 public:
  Binary(const KernelRequest &request, DeviceState &device) : count_(element_count(request.outputs[0].shape)) {
    const Layout<2> layout = layout_of(request);
    const std::int64_t pack = neighbours(layout, kMost) == kMost ? kMost : 1;
    kernel_ = pack == kMost ? binary_kernel<kMost, Op, A, B, R> : binary_kernel<1, Op, A, B, R>;
    walk_ = walk_of(in_packs(layout, pack));
    packs_ = count_ / pack;
    if constexpr (std::is_same_v<Op, Div> && std::is_integral_v<B>) {
      divisors_ = count_ == 0 ? 0 : element_count(request.inputs[1].shape);
      note_ = device.faults.source(FaultKind::division, subject(request));
    }
  }

  void run(Stream stream, const Launch &launch) override {
    const A *a = input<A>(launch, 0);
    const B *b = input<B>(launch, 1);
    R *y = output<R>(launch, 0);
    if constexpr (std::is_same_v<Op, Div> && std::is_integral_v<B>)
      cuda::launch(stream, zeros_kernel<B>, grid_of(divisors_), b, divisors_, note_);
    cuda::launch(stream, kernel_, grid_of(packs_), walk_, a, b, y, packs_);
  }

 private:
  static constexpr int kMost = kPackOf<A>;

  const std::int64_t count_;
  Walk<2> walk_;
  std::int64_t packs_;
  void (*kernel_)(Walk<2> walk, const A *a, const B *b, R *y, std::int64_t packs);
  std::int64_t divisors_ = 0;
  Note note_{};
};

using Make = KernelPtr (*)(const KernelRequest &request, DeviceState &device);
template <typename Op, typename A, typename B, typename R>
KernelPtr make_kernel(const KernelRequest &request, DeviceState &device) {
  return std::make_unique<Binary<Op, A, B, R>>(request, device);
}

struct BinaryRow {
  std::string_view op;
  Make f32, narrow, i64, i32, boolean;  // nullptr: the operator does not take this type

  Make of(DType dtype) const {
    switch (dtype) {
      case DType::f32:
        return f32;
      case DType::bf16:
        return narrow;
      case DType::i64:
        return i64;
      case DType::i32:
        return i32;
      case DType::boolean:
        return boolean;
      default:
        return nullptr;
    }
  }
};
template <typename Op>
constexpr BinaryRow arithmetic(std::string_view op) {
  using std::int32_t, std::int64_t;
  return {op,
          make_kernel<Op, float, float, float>,
          make_kernel<Op, bf16, bf16, bf16>,
          make_kernel<Op, int64_t, int64_t, int64_t>,
          make_kernel<Op, int32_t, int32_t, int32_t>,
          nullptr};
}
template <typename Op>
constexpr BinaryRow comparison(std::string_view op, Make boolean = nullptr) {
  using std::int32_t, std::int64_t;
  return {op,
          make_kernel<Op, float, float, bool>,
          make_kernel<Op, bf16, bf16, bool>,
          make_kernel<Op, int64_t, int64_t, bool>,
          make_kernel<Op, int32_t, int32_t, bool>,
          boolean};
}
template <typename Op>
constexpr Make kLogic = make_kernel<Op, std::uint8_t, std::uint8_t, bool>;

const BinaryRow kBinaryRows[] = {
    arithmetic<Add>("Add"),
    arithmetic<Sub>("Sub"),
    arithmetic<Mul>("Mul"),
    arithmetic<Div>("Div"),
    {"Pow", make_kernel<Pow, float, float, float>, make_kernel<Pow, bf16, bf16, bf16>, nullptr, nullptr, nullptr},
    arithmetic<Max>("Max"),
    arithmetic<Min>("Min"),
    comparison<Equal>("Equal", kLogic<Equal>),
    comparison<Less>("Less"),
    comparison<LessOrEqual>("LessOrEqual"),
    comparison<Greater>("Greater"),
    comparison<GreaterOrEqual>("GreaterOrEqual"),
    {"And", nullptr, nullptr, nullptr, nullptr, kLogic<And>},
    {"Or", nullptr, nullptr, nullptr, nullptr, kLogic<Or>},
    {"Xor", nullptr, nullptr, nullptr, nullptr, kLogic<Xor>},
};

template <int kCount, typename T>
__global__ void where_kernel(Walk<3> walk, const std::uint8_t *condition, const T *a, const T *b, T *y,
                             std::int64_t packs) {
  const bool condition_repeats = repeats(walk, 0), a_repeats = repeats(walk, 1), b_repeats = repeats(walk, 2);
  for (std::int64_t p = thread_index(); p < packs; p += thread_count()) {
    const Offsets<3> from = offsets_of(walk, p);
    const auto chosen = load_or_repeat<kCount>(condition + from.at[0], condition_repeats);
    const auto left = load_or_repeat<kCount>(a + from.at[1], a_repeats);
    const auto right = load_or_repeat<kCount>(b + from.at[2], b_repeats);
    Pack<T, kCount> to;
    PROTRAIN_UNROLL for (int j = 0; j < kCount; ++j) to.at[j] = chosen.at[j] != 0 ? left.at[j] : right.at[j];
    store<kCount>(y + p * kCount, to);
  }
}

template <typename T>
class Where : public CudaKernel {
 public:
  explicit Where(const KernelRequest &request) {
    Layout<3> layout{request.outputs[0].shape, {}};
    for (std::size_t n : {0, 1, 2})
      layout.strides[n] = broadcast_strides(request.inputs[n].shape, layout.dims, subject(request));
    layout = merged(layout, subject(request));
    const std::int64_t pack = neighbours(layout, kMost) == kMost ? kMost : 1;
    kernel_ = pack == kMost ? where_kernel<kMost, T> : where_kernel<1, T>;
    walk_ = walk_of(in_packs(layout, pack));
    packs_ = element_count(request.outputs[0].shape) / pack;
  }

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, kernel_, grid_of(packs_), walk_, input<std::uint8_t>(launch, 0), input<T>(launch, 1),
                 input<T>(launch, 2), output<T>(launch, 0), packs_);
  }

 private:
  static constexpr int kMost = kPackOf<T>;

  Walk<3> walk_;
  std::int64_t packs_;
  void (*kernel_)(Walk<3> walk, const std::uint8_t *condition, const T *a, const T *b, T *y, std::int64_t packs);
};
}  // namespace

KernelPtr make_binary(const KernelRequest &request, DeviceState &device) {
  const DType dtype = request.inputs.at(0).dtype, other = request.inputs.at(1).dtype;
  if (request.node.op == "Pow" && dtype == DType::bf16 && other == DType::f32)
    return make_kernel<Pow, bf16, float, bf16>(request, device);
  const BinaryRow *row = std::find_if(std::begin(kBinaryRows), std::end(kBinaryRows),
                                      [&](const BinaryRow &r) { return r.op == request.node.op; });
  const Make make = row != std::end(kBinaryRows) ? row->of(dtype) : nullptr;
  require(make != nullptr && other == dtype, Code::unsupported, subject(request), "cuda has no {} of {} and {}",
          request.node.op, name_of(dtype), name_of(other));
  return make(request, device);
}

KernelPtr make_where(const KernelRequest &request, DeviceState &) {
  require_dtype(request, request.inputs.at(0), DType::boolean);
  return by_size(request, request.outputs[0].dtype,
                 [&]<typename T>(T) -> KernelPtr { return std::make_unique<Where<T>>(request); });
}

}  // namespace protrain::backend::cuda
