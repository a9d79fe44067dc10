// Operators of one element, and their gradients dx = dy * slope(x).
#include "arith/unary.h"

#include <algorithm>
#include <limits>

#include "backend/cpu/elementwise.h"

namespace protrain::backend {

namespace {
using arith::Coefficients;
using Map = void (*)(const void *x, void *y, std::int64_t count, Coefficients k);
using GradMap = void (*)(const float *dy, const float *x, float *dx, std::int64_t count, Coefficients k);

template <typename F>
struct Loops {
  PROTRAIN_CLONES static void value(const void *from, void *to, std::int64_t count, Coefficients k) {
    const float *x = static_cast<const float *>(from);
    float *y = static_cast<float *>(to);
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) y[i] = F::value(x[i], k);
  }
  PROTRAIN_CLONES static void grad(const float *dy, const float *x, float *dx, std::int64_t count, Coefficients k) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < count; ++i) dx[i] = dy[i] * F::slope(x[i], k);
  }
};

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

#define PROTRAIN_ROW(NAME, ...) \
  { #NAME, Loops < arith::NAME> ::value, Loops < arith::NAME> ::grad, __VA_ARGS__ }
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const Row kRows[] = {
    PROTRAIN_ROW(Neg, {}, {}),
    PROTRAIN_ROW(Abs, {}, {}),
    PROTRAIN_ROW(Exp, {}, {}),
    PROTRAIN_ROW(Log, {}, {}),
    PROTRAIN_ROW(Sqrt, {}, {}),
    PROTRAIN_ROW(Reciprocal, {}, {}),
    PROTRAIN_ROW(Erf, {}, {}),
    PROTRAIN_ROW(Tanh, {}, {}),
    PROTRAIN_ROW(Sigmoid, {}, {}),
    PROTRAIN_ROW(Relu, {}, {}),
    PROTRAIN_ROW(LeakyRelu, {"alpha", 0.01}, {}),
    PROTRAIN_ROW(Elu, {"alpha", 1}, {}),
    PROTRAIN_ROW(Celu, {"alpha", 1}, {}),
    PROTRAIN_ROW(Selu, {"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}),
    PROTRAIN_ROW(Softplus, {}, {}),
    PROTRAIN_ROW(Softsign, {}, {}),
    PROTRAIN_ROW(HardSigmoid, {"alpha", 0.2}, {"beta", 0.5}),
    PROTRAIN_ROW(HardSwish, {}, {}),
    PROTRAIN_ROW(Mish, {}, {}),
    PROTRAIN_ROW(Sin, {}, {}),
    PROTRAIN_ROW(Cos, {}, {}),
    PROTRAIN_ROW(Tan, {}, {}),
    PROTRAIN_ROW(Asin, {}, {}),
    PROTRAIN_ROW(Acos, {}, {}),
    PROTRAIN_ROW(Atan, {}, {}),
    PROTRAIN_ROW(Sinh, {}, {}),
    PROTRAIN_ROW(Cosh, {}, {}),
    PROTRAIN_ROW(Asinh, {}, {}),
    PROTRAIN_ROW(Acosh, {}, {}),
    PROTRAIN_ROW(Atanh, {}, {}),
    PROTRAIN_ROW(Gelu, {}, {}),
    PROTRAIN_ROW(GeluTanh, {}, {}),
    PROTRAIN_ROW(Silu, {}, {}),
    PROTRAIN_ROW(Clip, {"min", -kInfinity}, {"max", kInfinity}),
    PROTRAIN_ROW(ThresholdedRelu, {"alpha", 1}, {}),
    PROTRAIN_ROW(Floor, {}, {}),
    PROTRAIN_ROW(Ceil, {}, {}),
    PROTRAIN_ROW(Round, {}, {}),
    PROTRAIN_ROW(Sign, {}, {}),
};
#undef PROTRAIN_ROW

// Operators with a bool result; k of IsInf says whether positive (a) and negative (b) infinities count.
template <typename T, typename Holds>
void predicate(const void *from, void *to, std::int64_t count, Holds holds) {
  const T *x = static_cast<const T *>(from);
  bool *y = static_cast<bool *>(to);
  for (std::int64_t i = 0; i < count; ++i) y[i] = holds(x[i]);
}
void is_not(const void *x, void *y, std::int64_t count, Coefficients) {
  predicate<std::uint8_t>(x, y, count, [](std::uint8_t v) { return v == 0; });
}
void is_nan(const void *x, void *y, std::int64_t count, Coefficients) {
  predicate<float>(x, y, count, [](float v) { return v != v; });
}
void is_infinite(const void *x, void *y, std::int64_t count, Coefficients k) {
  predicate<float>(x, y, count, [k](float v) {
    return (v == std::numeric_limits<float>::infinity() && k.a != 0) ||
           (v == -std::numeric_limits<float>::infinity() && k.b != 0);
  });
}
const Row kPredicates[] = {
    {"Not", is_not, nullptr, {}, {}},
    {"IsNaN", is_nan, nullptr, {}, {}},
    {"IsInf", is_infinite, nullptr, {"detect_positive", 1}, {"detect_negative", 1}},
};

template <std::size_t N>
const Row *find_row(const Row (&rows)[N], std::string_view op) {
  const Row *row = std::find_if(rows, rows + N, [&](const Row &r) { return r.op == op; });
  return row == rows + N ? nullptr : row;
}

const Row &row_of(const KernelRequest &request, std::string_view op) {
  if (op == "Gelu" && request.node.attributes.text("approximate", "none") == "tanh") op = "GeluTanh";
  const Row *row = find_row(kRows, op);
  if (row == nullptr) row = find_row(kPredicates, op);
  require(row != nullptr, Code::unsupported, subject(request), "the cpu has no loop for {}", op);
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
        from_bytes_(static_cast<std::int64_t>(size_of(request.inputs[0].dtype))),
        to_bytes_(static_cast<std::int64_t>(size_of(request.outputs[0].dtype))) {}

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
        count_(element_count(request.outputs[0].shape)) {}

  void run(Member &member, const Launch &launch) override {
    const Range mine = share(count_, kElementGrain, member);
    map_(input<float>(launch, 0) + mine.begin, input<float>(launch, 1) + mine.begin,
         output<float>(launch, 0) + mine.begin, mine.size(), k_);
  }

 private:
  const GradMap map_;
  const Coefficients k_;
  const std::int64_t count_;
};
}  // namespace

std::unique_ptr<CpuKernel> make_unary(const KernelRequest &request, int) {
  const Row &row = row_of(request, request.node.op);
  require_dtype(request, request.inputs[0], row.op == "Not" ? DType::boolean : DType::f32);
  return std::make_unique<UnaryKernel>(request, row);
}

std::unique_ptr<CpuKernel> make_unary_grad(const KernelRequest &request, int) {
  std::string_view op = request.node.op;
  op.remove_suffix(std::string_view("Grad").size());
  for (const graph::Type &operand : request.inputs) require_dtype(request, operand, DType::f32);
  return std::make_unique<UnaryGradKernel>(request, row_of(request, op));
}

}  // namespace protrain::backend
