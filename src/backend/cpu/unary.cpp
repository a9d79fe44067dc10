// Elementwise operators y = f(x), and their gradients dx = dy * f'(x).
#include "arith/unary.h"

#include <algorithm>
#include <limits>

#include "backend/cpu/elementwise.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
using arith::Coefficients;
using Map = void (*)(const void *x, void *y, std::int64_t count, Coefficients k);
using GradMap = void (*)(const void *dy, const void *x, void *dx, std::int64_t count, Coefficients k);

template <typename F, typename T>
PROTRAIN_INLINE void values(const void *from, void *to, std::int64_t count, Coefficients k) {
  const T *x = static_cast<const T *>(from);
  T *y = static_cast<T *>(to);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) y[i] = narrowed<T>(F::value(widened(x[i]), k));
}
template <typename F, typename T>
PROTRAIN_INLINE void gradients(const void *upstream, const void *from, void *to, std::int64_t count, Coefficients k) {
  const T *dy = static_cast<const T *>(upstream), *x = static_cast<const T *>(from);
  T *dx = static_cast<T *>(to);
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) dx[i] = narrowed<T>(widened(dy[i]) * F::slope(widened(x[i]), k));
}

template <typename F, typename T>
struct Vectorised {
  PROTRAIN_CLONES static void value(const void *from, void *to, std::int64_t count, Coefficients k) {
    values<F, T>(from, to, count, k);
  }
  PROTRAIN_CLONES static void grad(const void *upstream, const void *from, void *to, std::int64_t count,
                                   Coefficients k) {
    gradients<F, T>(upstream, from, to, count, k);
  }
};

template <typename Loops>
struct ThroughFloat32 {
  static void value(const void *from, void *to, std::int64_t count, Coefficients k) {
    float x[kPiece];
    for_each_piece(count, [&](std::int64_t first, std::int64_t n) {
      widen(static_cast<const f16 *>(from) + first, x, n);
      Loops::value(x, x, n, k);
      narrow(x, static_cast<f16 *>(to) + first, n);
    });
  }
  static void grad(const void *upstream, const void *from, void *to, std::int64_t count, Coefficients k) {
    float dy[kPiece], x[kPiece];
    for_each_piece(count, [&](std::int64_t first, std::int64_t n) {
      widen(static_cast<const f16 *>(upstream) + first, dy, n);
      widen(static_cast<const f16 *>(from) + first, x, n);
      Loops::grad(dy, x, dy, n, k);
      narrow(dy, static_cast<f16 *>(to) + first, n);
    });
  }
};
template <typename F>
struct Vectorised<F, f16> : ThroughFloat32<Vectorised<F, float>> {};

// The loops for functions that the C library computes one element at a time. These loops have no PROTRAIN_CLONES,
// because clones would not make them faster.
template <typename F, typename T>
struct OneByOne {
  static void value(const void *from, void *to, std::int64_t count, Coefficients k) {
    values<F, T>(from, to, count, k);
  }
  static void grad(const void *upstream, const void *from, void *to, std::int64_t count, Coefficients k) {
    gradients<F, T>(upstream, from, to, count, k);
  }
};

// Operators with a bool result. For IsInf, coefficient a says whether positive infinities count, and b whether negative
// ones do.
template <typename T, typename Holds>
void predicate(const void *from, void *to, std::int64_t count, Holds holds) {
  const T *x = static_cast<const T *>(from);
  bool *y = static_cast<bool *>(to);
  for (std::int64_t i = 0; i < count; ++i) y[i] = holds(operand(x[i]));
}
void is_not(const void *x, void *y, std::int64_t count, Coefficients) {
  predicate<std::uint8_t>(x, y, count, [](std::uint8_t v) { return v == 0; });
}
template <typename T>
void is_nan(const void *x, void *y, std::int64_t count, Coefficients) {
  predicate<T>(x, y, count, [](float v) { return v != v; });
}
template <typename T>
void is_infinite(const void *x, void *y, std::int64_t count, Coefficients k) {
  predicate<T>(x, y, count, [k](float v) {
    return (v == std::numeric_limits<float>::infinity() && k.a != 0) ||
           (v == -std::numeric_limits<float>::infinity() && k.b != 0);
  });
}

struct Setting {
  const char *attribute = nullptr;
  double fallback = 0;
};
struct Row {
  std::string_view op;
  Map value;
  GradMap grad;
  Setting a, b;
};

#define PROTRAIN_ROW(LOOPS, NAME, ...) \
  { #NAME, LOOPS < arith::NAME, T> ::value, LOOPS < arith::NAME, T> ::grad, __VA_ARGS__ }
constexpr double kInfinity = std::numeric_limits<double>::infinity();
template <typename T>
const Row kRows[] = {
    PROTRAIN_ROW(Vectorised, Neg, {}, {}),
    PROTRAIN_ROW(Vectorised, Abs, {}, {}),
    PROTRAIN_ROW(Vectorised, Exp, {}, {}),
    PROTRAIN_ROW(Vectorised, Log, {}, {}),
    PROTRAIN_ROW(Vectorised, Sqrt, {}, {}),
    PROTRAIN_ROW(Vectorised, Reciprocal, {}, {}),
    PROTRAIN_ROW(Vectorised, Erf, {}, {}),
    PROTRAIN_ROW(Vectorised, Tanh, {}, {}),
    PROTRAIN_ROW(Vectorised, Sigmoid, {}, {}),
    PROTRAIN_ROW(Vectorised, Relu, {}, {}),
    PROTRAIN_ROW(Vectorised, LeakyRelu, {"alpha", 0.01}, {}),
    PROTRAIN_ROW(Vectorised, Elu, {"alpha", 1}, {}),
    PROTRAIN_ROW(Vectorised, Celu, {"alpha", 1}, {}),
    PROTRAIN_ROW(Vectorised, Selu, {"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}),
    PROTRAIN_ROW(Vectorised, Softplus, {}, {}),
    PROTRAIN_ROW(Vectorised, Softsign, {}, {}),
    PROTRAIN_ROW(Vectorised, HardSigmoid, {"alpha", 0.2}, {"beta", 0.5}),
    PROTRAIN_ROW(Vectorised, HardSwish, {}, {}),
    PROTRAIN_ROW(Vectorised, Mish, {}, {}),
    PROTRAIN_ROW(OneByOne, Sin, {}, {}),
    PROTRAIN_ROW(OneByOne, Cos, {}, {}),
    PROTRAIN_ROW(OneByOne, Tan, {}, {}),
    PROTRAIN_ROW(OneByOne, Asin, {}, {}),
    PROTRAIN_ROW(OneByOne, Acos, {}, {}),
    PROTRAIN_ROW(OneByOne, Atan, {}, {}),
    PROTRAIN_ROW(OneByOne, Sinh, {}, {}),
    PROTRAIN_ROW(OneByOne, Cosh, {}, {}),
    PROTRAIN_ROW(OneByOne, Asinh, {}, {}),
    PROTRAIN_ROW(OneByOne, Acosh, {}, {}),
    PROTRAIN_ROW(OneByOne, Atanh, {}, {}),
    PROTRAIN_ROW(Vectorised, Gelu, {}, {}),
    PROTRAIN_ROW(Vectorised, GeluTanh, {}, {}),
    PROTRAIN_ROW(Vectorised, Silu, {}, {}),
    PROTRAIN_ROW(Vectorised, Clip, {"min", -kInfinity}, {"max", kInfinity}),
    PROTRAIN_ROW(Vectorised, ThresholdedRelu, {"alpha", 1}, {}),
    PROTRAIN_ROW(Vectorised, Floor, {}, {}),
    PROTRAIN_ROW(Vectorised, Ceil, {}, {}),
    PROTRAIN_ROW(Vectorised, Round, {}, {}),
    PROTRAIN_ROW(Vectorised, Sign, {}, {}),
    {"IsNaN", is_nan<T>, nullptr, {}, {}},
    {"IsInf", is_infinite<T>, nullptr, {"detect_positive", 1}, {"detect_negative", 1}},
};
#undef PROTRAIN_ROW
const Row kNot = {"Not", is_not, nullptr, {}, {}};

template <typename T>
const Row &row_of(const KernelRequest &request, std::string_view op) {
  if (op == "Gelu" && request.node.attributes.text("approximate", "none") == "tanh") op = "GeluTanh";
  const Row *row =
      std::find_if(std::begin(kRows<T>), std::end(kRows<T>), [&](const Row &each) { return each.op == op; });
  require(row != std::end(kRows<T>), Code::unsupported, subject(request), "the cpu has no loop for {}", op);
  return *row;
}

Coefficients coefficients(const Row &row, const graph::Attributes &attributes) {
  auto read = [&](const Setting &setting) {
    return setting.attribute ? static_cast<float>(attributes.real(setting.attribute, setting.fallback)) : 0.0f;
  };
  return {read(row.a), read(row.b)};
}

class UnaryKernel : public CpuKernel {
 public:
  UnaryKernel(const KernelRequest &request, const Row &row)
      : map_(row.value),
        k_(coefficients(row, request.node.attributes)),
        count_(element_count(request.outputs[0].shape)),
        from_bytes_(element_bytes(request.inputs[0])),
        to_bytes_(element_bytes(request.outputs[0])) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(count_, kElementGrain, member);
    map_(input<std::byte>(launch, 0) + mine.begin * from_bytes_, output<std::byte>(launch, 0) + mine.begin * to_bytes_,
         mine.size(), k_);
  }

 private:
  const Map map_;
  const Coefficients k_;
  const std::int64_t count_, from_bytes_, to_bytes_;
};

class UnaryGradKernel : public CpuKernel {
 public:
  UnaryGradKernel(const KernelRequest &request, const Row &row)
      : map_(row.grad),
        k_(coefficients(row, request.node.attributes)),
        count_(element_count(request.outputs[0].shape)),
        bytes_(element_bytes(request.outputs[0])) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(count_, kElementGrain, member);
    const std::int64_t at = mine.begin * bytes_;
    map_(input<std::byte>(launch, 0) + at, input<std::byte>(launch, 1) + at, output<std::byte>(launch, 0) + at,
         mine.size(), k_);
  }

 private:
  const GradMap map_;
  const Coefficients k_;
  const std::int64_t count_, bytes_;
};
}  // namespace

KernelPtr make_unary(const KernelRequest &request, int) {
  if (request.node.op == "Not") {
    require_dtype(request, request.inputs[0], DType::boolean);
    return std::make_unique<UnaryKernel>(request, kNot);
  }
  return by_float(request, request.inputs[0], [&]<typename T>(T) {
    return std::make_unique<UnaryKernel>(request, row_of<T>(request, request.node.op));
  });
}

KernelPtr make_unary_grad(const KernelRequest &request, int) {
  std::string_view op = request.node.op;
  op.remove_suffix(std::string_view("Grad").size());
  for (const graph::Type &operand : request.inputs) require_dtype(request, operand, request.inputs[0].dtype);
  return by_float(request, request.inputs[0],
                  [&]<typename T>(T) { return std::make_unique<UnaryGradKernel>(request, row_of<T>(request, op)); });
}

}  // namespace protrain::backend::cpu
