// Broadcasting arithmetic, comparison and logic; Where.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "arith/binary.h"
#include "backend/cpu/elementwise.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
// Computes y[i] = op(a[i * a_stride], b[i * b_stride]) for `count` elements.
using Loop = void (*)(const void *a, std::int64_t a_stride, const void *b, std::int64_t b_stride, void *y,
                      std::int64_t count);

using namespace arith::binary;

struct Pow {
  PROTRAIN_INLINE static float of(float a, float b) { return std::pow(a, b); }
};

template <typename Op, typename A, typename B, typename R>
PROTRAIN_INLINE void strided_loop(const A *a, std::int64_t a_stride, const B *b, std::int64_t b_stride, R *y,
                                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) y[i] = result<R>(Op::of(operand(a[i * a_stride]), operand(b[i * b_stride])));
}

template <typename Op, typename T>
PROTRAIN_INLINE void vectorised_loop(const T *a, std::int64_t a_stride, const T *b, std::int64_t b_stride, T *y,
                                     std::int64_t count) {
  if (a_stride == 1 && b_stride == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = result<T>(Op::of(operand(a[i]), operand(b[i])));
  } else if (a_stride == 1 && b_stride == 0) {
    const auto right = operand(*b);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = result<T>(Op::of(operand(a[i]), right));
  } else if (a_stride == 0 && b_stride == 1) {
    const auto left = operand(*a);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = result<T>(Op::of(left, operand(b[i])));
  } else {
    strided_loop<Op>(a, a_stride, b, b_stride, y, count);
  }
}

// The loop of an arithmetic operator on floats, compiled once for each instruction set (PROTRAIN_CLONES). The other
// operators here do not need that, because a step spends next to no time on them.
template <typename Op, typename T>
struct Arithmetic {
  PROTRAIN_CLONES static void run(const void *a, std::int64_t a_stride, const void *b, std::int64_t b_stride, void *y,
                                  std::int64_t count) {
    vectorised_loop<Op>(static_cast<const T *>(a), a_stride, static_cast<const T *>(b), b_stride, static_cast<T *>(y),
                        count);
  }
};
template <typename Op>
struct Arithmetic<Op, f16> {
  static void run(const void *a_at, std::int64_t a_stride, const void *b_at, std::int64_t b_stride, void *y_at,
                  std::int64_t count) {
    const auto *a = static_cast<const f16 *>(a_at), *b = static_cast<const f16 *>(b_at);
    auto *y = static_cast<f16 *>(y_at);
    float left[kPiece], right[kPiece], results[kPiece];
    for_each_piece(count, [&](std::int64_t first, std::int64_t n) {
      widen_strided(a + first * a_stride, a_stride, left, n);
      widen_strided(b + first * b_stride, b_stride, right, n);
      Arithmetic<Op, float>::run(left, a_stride != 0, right, b_stride != 0, results, n);
      narrow(results, y + first, n);
    });
  }

  // Widens `count` elements that lie `stride` apart. With stride 0 they are all the same element, and only to[0] is
  // written.
  static void widen_strided(const f16 *from, std::int64_t stride, float *to, std::int64_t count) {
    if (stride == 0 || stride == 1) return widen(from, to, stride == 0 ? 1 : count);
    for (std::int64_t i = 0; i < count; ++i) to[i] = widened(from[i * stride]);
  }
};
template <typename Op, typename A, typename B = A>
void run_strided(const void *a, std::int64_t a_stride, const void *b, std::int64_t b_stride, void *y,
                 std::int64_t count) {
  using Value = decltype(Op::of(operand(A{}), operand(B{})));
  using Result = std::conditional_t<std::is_same_v<Value, bool>, bool, A>;
  strided_loop<Op>(static_cast<const A *>(a), a_stride, static_cast<const B *>(b), b_stride, static_cast<Result *>(y),
                   count);
}

// Computes x^e for a sequence of elements. In most models all elements have the same e, which is 2 or 3. In such models
// multiplications take the place of pow().
template <typename T, typename E>
struct Powers {
  PROTRAIN_CLONES static void known(const T *x, bool cubed, T *y, std::int64_t count) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) {
      const float base = widened(x[i]);
      y[i] = narrowed<T>(base * base * (cubed ? base : 1.0f));
    }
  }
  static void run(const void *a, std::int64_t a_stride, const void *b, std::int64_t b_stride, void *y,
                  std::int64_t count) {
    const float exponent = widened(*static_cast<const E *>(b));
    if (a_stride == 1 && b_stride == 0 && (exponent == 2 || exponent == 3))
      return known(static_cast<const T *>(a), exponent == 3, static_cast<T *>(y), count);
    run_strided<Pow, T, E>(a, a_stride, b, b_stride, y, count);
  }
};

// Each of these functions returns an operator's loop for operands of types a and b. The result is nullptr if the
// operator does not take these types.
template <typename Op>
Loop integers(DType a, DType b) {
  if (a != b) return nullptr;
  if (a == DType::i64) return run_strided<Op, std::int64_t>;
  return a == DType::i32 ? run_strided<Op, std::int32_t> : nullptr;
}
template <typename Op>
Loop arithmetic(DType a, DType b) {
  if (a == b && is_computed(a)) return with_float(a, []<typename T>(T) -> Loop { return Arithmetic<Op, T>::run; });
  return integers<Op>(a, b);
}
template <typename Op>
Loop comparison(DType a, DType b) {
  if (a == b && is_computed(a)) return with_float(a, []<typename T>(T) -> Loop { return run_strided<Op, T>; });
  return integers<Op>(a, b);
}
template <typename Op>
Loop logic(DType a, DType b) {
  return a == DType::boolean && b == a ? run_strided<Op, std::uint8_t> : nullptr;
}
Loop equality(DType a, DType b) { return a == DType::boolean ? logic<Equal>(a, b) : comparison<Equal>(a, b); }
Loop powers(DType a, DType b) {
  if (!is_computed(a)) return nullptr;
  return with_float(a, [&]<typename T>(T) -> Loop {
    return b == a ? Powers<T, T>::run : (b == DType::f32 ? Powers<T, float>::run : nullptr);
  });
}

struct Row {
  std::string_view op;
  Loop (*loop)(DType a, DType b);
};
const Row kRows[] = {
    {"Add", arithmetic<Add>},
    {"Sub", arithmetic<Sub>},
    {"Mul", arithmetic<Mul>},
    {"Div", arithmetic<Div>},
    {"Pow", powers},
    {"Max", arithmetic<Max>},
    {"Min", arithmetic<Min>},
    {"Equal", equality},
    {"Less", comparison<Less>},
    {"LessOrEqual", comparison<LessOrEqual>},
    {"Greater", comparison<Greater>},
    {"GreaterOrEqual", comparison<GreaterOrEqual>},
    {"And", logic<And>},
    {"Or", logic<Or>},
    {"Xor", logic<Xor>},
};

Loop find_loop(const KernelRequest &request) {
  const DType a = request.inputs[0].dtype, b = request.inputs[1].dtype;
  const Row *row =
      std::find_if(std::begin(kRows), std::end(kRows), [&](const Row &r) { return r.op == request.node.op; });
  const Loop loop = row == std::end(kRows) ? nullptr : row->loop(a, b);
  require(loop != nullptr, Code::unsupported, subject(request), "the cpu has no {} of {} and {}", request.node.op,
          name_of(a), name_of(b));
  return loop;
}

template <std::size_t N>
Layout<N> broadcast_layout(const KernelRequest &request) {
  Layout<N> layout{request.outputs[0].shape, {}};
  for (std::size_t n = 0; n < N; ++n)
    layout.strides[n] = broadcast_strides(request.inputs[n].shape, layout.dims, subject(request));
  return merged(layout, subject(request));
}

class BinaryKernel : public CpuKernel {
 public:
  explicit BinaryKernel(const KernelRequest &request)
      : loop_(find_loop(request)),
        layout_(broadcast_layout<2>(request)),
        count_(layout_.count()),
        a_bytes_(element_bytes(request.inputs[0])),
        b_bytes_(element_bytes(request.inputs[1])),
        y_bytes_(element_bytes(request.outputs[0])),
        divides_integers_(request.node.op == "Div" && is_integer(request.inputs[0].dtype)),
        subject_(subject(request)) {}

  void run(Member &member, const Launch &launch) override {
    const std::byte *a = input<std::byte>(launch, 0), *b = input<std::byte>(launch, 1);
    std::byte *y = output<std::byte>(launch, 0);
    const std::int64_t a_stride = layout_.inner_stride(0), b_stride = layout_.inner_stride(1);
    for_each_run(layout_, share(count_, kElementGrain, member), [&](std::int64_t at, const auto &from, auto count) {
      const std::byte *right = b + from[1] * b_bytes_;
      if (divides_integers_) refuse_zeros(right, b_stride, count);
      loop_(a + from[0] * a_bytes_, a_stride, right, b_stride, y + at * y_bytes_, count);
    });
  }

 private:
  void refuse_zeros(const std::byte *divisors, std::int64_t stride, std::int64_t count) const {
    const DType dtype = b_bytes_ == 8 ? DType::i64 : DType::i32;
    for (std::int64_t i = 0; i < count; ++i)
      require(graph::load_integer(dtype, divisors + i * stride * b_bytes_) != 0, Code::arg, subject_,
              "an integer is divided by 0");
  }

  const Loop loop_;
  const Layout<2> layout_;
  const std::int64_t count_, a_bytes_, b_bytes_, y_bytes_;
  const bool divides_integers_;
  const std::string subject_;
};

struct Choice {  // the operands of Where, for elements along the innermost dim
  const std::uint8_t *condition;
  const void *a, *b;
  void *y;
};

// Computes Where for `count` elements whose conditions are contiguous. AS and BS are the strides of a and b.
template <typename T, std::int64_t AS, std::int64_t BS>
void choose_known(const Choice &run, std::int64_t count) {
  const T *a = static_cast<const T *>(run.a), *b = static_cast<const T *>(run.b);
  T *y = static_cast<T *>(run.y);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const T left = a[i * AS], right = b[i * BS];  // both are read, so that the selection needs no branch
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

KernelPtr make_binary(const KernelRequest &request, int) { return std::make_unique<BinaryKernel>(request); }

KernelPtr make_where(const KernelRequest &request, int) {
  require_dtype(request, request.inputs[0], DType::boolean);
  return make_by_size<WhereKernel>(request, request.outputs[0].dtype);
}

}  // namespace protrain::backend::cpu
