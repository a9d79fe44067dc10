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

// y[i] = op(a[i], b[i]); a step of 0 repeats an operand's only element.
template <typename Op, typename A, typename B, typename R>
__global__ void pack_kernel(const A *a, int a_step, const B *b, int b_step, R *y, std::int64_t count) {
  for_packs(count, [&](std::int64_t first, auto width) {
    constexpr int n = decltype(width)::value;
    Pack<A, n> left;
    Pack<B, n> right;
    if (a_step != 0)
      left = load<n>(a + first);
    else
      for (int j = 0; j < n; ++j) left.at[j] = *a;
    if (b_step != 0)
      right = load<n>(b + first);
    else
      for (int j = 0; j < n; ++j) right.at[j] = *b;
    Pack<R, n> to;
    for (int j = 0; j < n; ++j) to.at[j] = result<R>(Op::of(operand(left.at[j]), operand(right.at[j])));
    store<n>(y + first, to);
  });
}

template <typename Op, typename A, typename B, typename R>
__global__ void walk_kernel(Walk<2> walk, const A *a, const B *b, R *y, std::int64_t count) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    const Places<2> from = places(walk, i);
    y[i] = result<R>(Op::of(operand(a[from.at[0]]), operand(b[from.at[1]])));
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
  Binary(const KernelRequest &request, Site &site) : count_(element_count(request.outputs[0].shape)) {
    const Layout<2> layout = layout_of(request);
    in_packs_ = layout.dims.size() == 1;
    for (std::size_t n : {0, 1}) {
      in_packs_ = in_packs_ && layout.inner_stride(n) <= 1;
      steps_[n] = static_cast<int>(in_packs_ ? layout.inner_stride(n) : 0);
    }
    walk_ = walk_of(layout);
    if constexpr (std::is_same_v<Op, Div> && std::is_integral_v<B>) {
      divisors_ = count_ == 0 ? 0 : element_count(request.inputs[1].shape);
      note_ = site.faults.source(FaultKind::division, subject(request));
    }
  }

  void run(Stream stream, const Launch &launch) override {
    const A *a = input<A>(launch, 0);
    const B *b = input<B>(launch, 1);
    R *y = output<R>(launch, 0);
    if constexpr (std::is_same_v<Op, Div> && std::is_integral_v<B>)
      cuda::launch(stream, zeros_kernel<B>, grid_of(divisors_), b, divisors_, note_);
    if (in_packs_)
      cuda::launch(stream, pack_kernel<Op, A, B, R>, pack_grid(count_), a, steps_[0], b, steps_[1], y, count_);
    else
      cuda::launch(stream, walk_kernel<Op, A, B, R>, grid_of(count_), walk_, a, b, y, count_);
  }

 private:
  const std::int64_t count_;
  Walk<2> walk_;
  bool in_packs_;
  int steps_[2];
  std::int64_t divisors_ = 0;
  Note note_{};
};

using Make = Made (*)(const KernelRequest &request, Site &site);
template <typename Op, typename A, typename B, typename R>
Made made(const KernelRequest &request, Site &site) {
  return std::make_unique<Binary<Op, A, B, R>>(request, site);
}

struct Row {
  std::string_view op;
  Make f32, narrow, i64, i32, boolean;  // nullptr: not for this type
};
template <typename Op>
constexpr Row arithmetic(std::string_view op) {
  using std::int32_t, std::int64_t;
  return {op,
          made<Op, float, float, float>,
          made<Op, bf16, bf16, bf16>,
          made<Op, int64_t, int64_t, int64_t>,
          made<Op, int32_t, int32_t, int32_t>,
          nullptr};
}
template <typename Op>
constexpr Row comparison(std::string_view op, Make boolean = nullptr) {
  using std::int32_t, std::int64_t;
  return {op,
          made<Op, float, float, bool>,
          made<Op, bf16, bf16, bool>,
          made<Op, int64_t, int64_t, bool>,
          made<Op, int32_t, int32_t, bool>,
          boolean};
}
template <typename Op>
constexpr Make kLogic = made<Op, std::uint8_t, std::uint8_t, bool>;

const Row kRows[] = {
    arithmetic<Add>("Add"),
    arithmetic<Sub>("Sub"),
    arithmetic<Mul>("Mul"),
    arithmetic<Div>("Div"),
    {"Pow", made<Pow, float, float, float>, made<Pow, bf16, bf16, bf16>, nullptr, nullptr, nullptr},
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

template <typename T>
__global__ void where_kernel(Walk<3> walk, const std::uint8_t *condition, const T *a, const T *b, T *y,
                             std::int64_t count) {
  for (std::int64_t i = thread_index(); i < count; i += thread_count()) {
    const Places<3> from = places(walk, i);
    y[i] = condition[from.at[0]] != 0 ? a[from.at[1]] : b[from.at[2]];
  }
}

template <typename T>
class Where : public CudaKernel {
 public:
  explicit Where(const KernelRequest &request) : count_(element_count(request.outputs[0].shape)) {
    Layout<3> layout{request.outputs[0].shape, {}};
    for (std::size_t n : {0, 1, 2})
      layout.strides[n] = broadcast_strides(request.inputs[n].shape, layout.dims, subject(request));
    walk_ = walk_of(merged(layout, subject(request)));
  }

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, where_kernel<T>, grid_of(count_), walk_, input<std::uint8_t>(launch, 0), input<T>(launch, 1),
                 input<T>(launch, 2), output<T>(launch, 0), count_);
  }

 private:
  const std::int64_t count_;
  Walk<3> walk_;
};
}  // namespace

Made make_binary(const KernelRequest &request, Site &site) {
  const DType dtype = request.inputs.at(0).dtype, other = request.inputs.at(1).dtype;
  if (request.node.op == "Pow" && dtype == DType::bf16 && other == DType::f32)
    return made<Pow, bf16, float, bf16>(request, site);
  const Row *row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row &r) { return r.op == request.node.op; });
  Make make = nullptr;
  if (row != std::end(kRows))
    make = dtype == DType::f32       ? row->f32
           : dtype == DType::bf16    ? row->narrow
           : dtype == DType::i64     ? row->i64
           : dtype == DType::i32     ? row->i32
           : dtype == DType::boolean ? row->boolean
                                     : nullptr;
  require(make != nullptr && other == dtype, Code::unsupported, subject(request), "cuda has no {} of {} and {}",
          request.node.op, name_of(dtype), name_of(other));
  return make(request, site);
}

Made make_where(const KernelRequest &request, Site &) {
  require_dtype(request, request.inputs.at(0), DType::boolean);
  return by_size(request, request.outputs[0].dtype,
                 [&]<typename T>(T) -> Made { return std::make_unique<Where<T>>(request); });
}

}  // namespace protrain::backend::cuda
