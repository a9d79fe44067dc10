// Broadcasting arithmetic, comparison and logic; Where.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "arith/binary.h"
#include "backend/cpu/elementwise.h"

namespace protrain::backend {

namespace {
// One run: y[i] = op(a[i * a_stride], b[i * b_stride])
using Loop = void (*)(const void *a, std::int64_t a_stride, const void *b, std::int64_t b_stride, void *y,
                      std::int64_t count);

using arith::Add;
using arith::And;
using arith::Div;
using arith::Equal;
using arith::Greater;
using arith::GreaterOrEqual;
using arith::Less;
using arith::LessOrEqual;
using arith::Max;
using arith::Min;
using arith::Mul;
using arith::Or;
using arith::Sub;
using arith::Xor;

struct Pow {
  template <typename T>
  PROTRAIN_INLINE static T of(T a, T b) {
    return std::pow(a, b);
  }
};

template <typename Op, typename T, typename R>
PROTRAIN_INLINE void loop_over(const void *a_at, std::int64_t a_stride, const void *b_at, std::int64_t b_stride,
                               void *y_at, std::int64_t count) {
  const T *a = static_cast<const T *>(a_at), *b = static_cast<const T *>(b_at);
  R *y = static_cast<R *>(y_at);
  if (a_stride == 1 && b_stride == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = Op::of(a[i], b[i]);
  } else if (a_stride == 1 && b_stride == 0) {
    const T right = *b;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = Op::of(a[i], right);
  } else if (a_stride == 0 && b_stride == 1) {
    const T left = *a;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = Op::of(left, b[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i] = Op::of(a[i * a_stride], b[i * b_stride]);
  }
}

template <typename Op, typename T>
struct Loops {
  using Result = decltype(Op::of(T{}, T{}));
  PROTRAIN_CLONES static void run(const void *a, std::int64_t a_stride, const void *b, std::int64_t b_stride, void *y,
                                  std::int64_t count) {
    loop_over<Op, T, Result>(a, a_stride, b, b_stride, y, count);
  }
};

// x^2 and x^3, the exponents that models use, without the cost of pow; the exponent is the same along the run.
template <>
struct Loops<Pow, float> {
  PROTRAIN_CLONES static void powers(const float *x, bool cubed, float *y, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = x[i] * x[i] * (cubed ? x[i] : 1.0f);
  }
  static void run(const void *a, std::int64_t a_stride, const void *b, std::int64_t b_stride, void *y,
                  std::int64_t count) {
    const float exponent = *static_cast<const float *>(b);
    if (a_stride == 1 && b_stride == 0 && (exponent == 2 || exponent == 3))
      return powers(static_cast<const float *>(a), exponent == 3, static_cast<float *>(y), count);
    loop_over<Pow, float, float>(a, a_stride, b, b_stride, y, count);
  }
};

struct Row {
  std::string_view op;
  Loop f32, i64, i32, boolean;  // nullptr: not for this type
};
template <typename Op>
constexpr Row numbers(std::string_view op, Loop boolean = nullptr) {
  return {op, Loops<Op, float>::run, Loops<Op, std::int64_t>::run, Loops<Op, std::int32_t>::run, boolean};
}
template <typename Op>
constexpr Row logic(std::string_view op) {
  return {op, nullptr, nullptr, nullptr, Loops<Op, std::uint8_t>::run};
}
const Row kRows[] = {
    numbers<Add>("Add"),
    numbers<Sub>("Sub"),
    numbers<Mul>("Mul"),
    numbers<Div>("Div"),
    {"Pow", Loops<Pow, float>::run, nullptr, nullptr, nullptr},
    numbers<Max>("Max"),
    numbers<Min>("Min"),
    numbers<Equal>("Equal", Loops<Equal, std::uint8_t>::run),
    numbers<Less>("Less"),
    numbers<LessOrEqual>("LessOrEqual"),
    numbers<Greater>("Greater"),
    numbers<GreaterOrEqual>("GreaterOrEqual"),
    logic<And>("And"),
    logic<Or>("Or"),
    logic<Xor>("Xor"),
};

Loop find_loop(const KernelRequest &request) {
  const DType dtype = request.inputs[0].dtype;
  const Row *row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row &r) { return r.op == request.node.op; });
  Loop loop = nullptr;
  if (row != std::end(kRows))
    loop = dtype == DType::f32       ? row->f32
           : dtype == DType::i64     ? row->i64
           : dtype == DType::i32     ? row->i32
           : dtype == DType::boolean ? row->boolean
                                     : nullptr;
  require(loop != nullptr && request.inputs[1].dtype == dtype, Code::unsupported, subject(request),
          "the cpu has no {} of {} and {}", request.node.op, name_of(dtype), name_of(request.inputs[1].dtype));
  return loop;
}

template <std::size_t N>
Layout<N> broadcast_layout(const KernelRequest &request) {
  Layout<N> layout{request.outputs[0].shape, {}};
  for (std::size_t n = 0; n < N; ++n)
    layout.strides[n] = broadcast_strides(request.inputs[n].shape, layout.dims, subject(request));
  return merged(layout, subject(request));
}

std::int64_t element_bytes(const graph::Type &type) { return static_cast<std::int64_t>(size_of(type.dtype)); }

class BinaryKernel : public CpuKernel {
 public:
  explicit BinaryKernel(const KernelRequest &request)
      : loop_(find_loop(request)),
        layout_(broadcast_layout<2>(request)),
        count_(layout_.count()),
        from_bytes_(element_bytes(request.inputs[0])),
        to_bytes_(element_bytes(request.outputs[0])),
        divides_integers_(request.node.op == "Div" && is_integer(request.inputs[0].dtype)),
        subject_(subject(request)) {}

  void run(Member &member, const Launch &launch) override {
    const std::byte *a = input<std::byte>(launch, 0), *b = input<std::byte>(launch, 1);
    std::byte *y = output<std::byte>(launch, 0);
    const std::int64_t a_stride = layout_.inner_stride(0), b_stride = layout_.inner_stride(1);
    for_each_run(layout_, share(count_, kElementGrain, member), [&](std::int64_t at, const auto &from, auto count) {
      const std::byte *right = b + from[1] * from_bytes_;
      if (divides_integers_) refuse_zeros(right, b_stride, count);
      loop_(a + from[0] * from_bytes_, a_stride, right, b_stride, y + at * to_bytes_, count);
    });
  }

 private:
  void refuse_zeros(const std::byte *divisors, std::int64_t stride, std::int64_t count) const {
    const DType dtype = from_bytes_ == 8 ? DType::i64 : DType::i32;
    for (std::int64_t i = 0; i < count; ++i)
      require(graph::load_integer(dtype, divisors + i * stride * from_bytes_) != 0, Code::arg, subject_,
              "an integer is divided by 0");
  }

  const Loop loop_;
  const Layout<2> layout_;
  const std::int64_t count_, from_bytes_, to_bytes_;
  const bool divides_integers_;
  const std::string subject_;
};

struct Choice {  // one run of Where
  const std::uint8_t *condition;
  const void *a, *b;
  void *y;
};

// AS and BS: strides of a and b, for the compiler to know.
template <typename T, std::int64_t AS, std::int64_t BS>
void choose_known(const Choice &run, std::int64_t count) {
  const T *a = static_cast<const T *>(run.a), *b = static_cast<const T *>(run.b);
  T *y = static_cast<T *>(run.y);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const T left = a[i * AS], right = b[i * BS];  // both are read, so that the choice needs no branch
    y[i] = run.condition[i] != 0 ? left : right;
  }
}

template <typename T>
void choose(const Choice &run, const std::array<std::int64_t, 3> &strides, std::int64_t count) {
  const auto [c, a, b] = strides;
  if (c == 1 && a == 1 && b == 1) return choose_known<T, 1, 1>(run, count);
  if (c == 1 && a == 1 && b == 0) return choose_known<T, 1, 0>(run, count);
  if (c == 1 && a == 0 && b == 1) return choose_known<T, 0, 1>(run, count);
  if (c == 1 && a == 0 && b == 0) return choose_known<T, 0, 0>(run, count);
  const T *left = static_cast<const T *>(run.a), *right = static_cast<const T *>(run.b);
  T *y = static_cast<T *>(run.y);
  for (std::int64_t i = 0; i < count; ++i) y[i] = run.condition[i * c] != 0 ? left[i * a] : right[i * b];
}

template <typename T>
class WhereKernel : public CpuKernel {
 public:
  explicit WhereKernel(const KernelRequest &request) : layout_(broadcast_layout<3>(request)), count_(layout_.count()) {}

  void run(Member &member, const Launch &launch) override {
    const std::array<std::int64_t, 3> strides{layout_.inner_stride(0), layout_.inner_stride(1),
                                              layout_.inner_stride(2)};
    const auto *condition = input<std::uint8_t>(launch, 0);
    const T *a = input<T>(launch, 1), *b = input<T>(launch, 2);
    T *y = output<T>(launch, 0);
    for_each_run(layout_, share(count_, kElementGrain, member), [&](std::int64_t at, const auto &from, auto count) {
      choose<T>({condition + from[0], a + from[1], b + from[2], y + at}, strides, count);
    });
  }

 private:
  const Layout<3> layout_;
  const std::int64_t count_;
};
}  // namespace

std::unique_ptr<CpuKernel> make_binary(const KernelRequest &request, int) {
  return std::make_unique<BinaryKernel>(request);
}

std::unique_ptr<CpuKernel> make_where(const KernelRequest &request, int) {
  require_dtype(request, request.inputs[0], DType::boolean);
  return make_by_size<WhereKernel>(request, request.outputs[0].dtype);
}

}  // namespace protrain::backend
