// Elementwise operators of one operand, y = f(x), and their gradients dx = dy * f'(x).
#include "arith/unary.h"

#include <algorithm>

#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

namespace {
using arith::Coefficients;

template <typename F, typename T>
__global__ void value_kernel(const T *x, T *y, std::int64_t count, Coefficients k) {
  for_packs<kPackOf<T>>(count, [&](std::int64_t first, auto width) {
    constexpr int n = decltype(width)::value;
    const Pack<T, n> from = load<n>(x + first);
    store<n>(y + first, rounded_pack<T, n>([&](int j) { return Formula<F, T>::value(widened(from.at[j]), k); }));
  });
}

template <typename F, typename T>
__global__ void slope_kernel(const T *dy, const T *x, T *dx, std::int64_t count, Coefficients k) {
  for_packs<kPackOf<T>>(count, [&](std::int64_t first, auto width) {
    constexpr int n = decltype(width)::value;
    const Pack<T, n> upstream = load<n>(dy + first), from = load<n>(x + first);
    store<n>(dx + first, rounded_pack<T, n>([&](int j) {
               return widened(upstream.at[j]) * Formula<F, T>::slope(widened(from.at[j]), k);
             }));
  });
}

template <typename T>
struct Maps {
  void (*value)(const T *x, T *y, std::int64_t count, Coefficients k);
  void (*slope)(const T *dy, const T *x, T *dx, std::int64_t count, Coefficients k);
};

struct Setting {
  const char *attribute = nullptr;
  double fallback = 0;
};
struct UnaryRow {
  std::string_view op;
  Maps<float> f32;
  Maps<bf16> narrow;
  Setting a, b;

  template <typename T>
  const Maps<T> &maps() const {
    if constexpr (std::is_same_v<T, float>)
      return f32;
    else
      return narrow;
  }
};

template <typename F>
UnaryRow row(std::string_view op, Setting a = {}, Setting b = {}) {
  return {op, {value_kernel<F, float>, slope_kernel<F, float>}, {value_kernel<F, bf16>, slope_kernel<F, bf16>}, a, b};
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();
#define PROTRAIN_ROW(NAME, ...) row<arith::NAME>(#NAME, ##__VA_ARGS__)
const UnaryRow kUnaryRows[] = {
    PROTRAIN_ROW(Neg),
    PROTRAIN_ROW(Abs),
    PROTRAIN_ROW(Exp),
    PROTRAIN_ROW(Log),
    PROTRAIN_ROW(Sqrt),
    PROTRAIN_ROW(Reciprocal),
    PROTRAIN_ROW(Erf),
    PROTRAIN_ROW(Tanh),
    PROTRAIN_ROW(Sigmoid),
    PROTRAIN_ROW(Relu),
    PROTRAIN_ROW(LeakyRelu, {"alpha", 0.01}),
    PROTRAIN_ROW(Elu, {"alpha", 1}),
    PROTRAIN_ROW(Celu, {"alpha", 1}),
    PROTRAIN_ROW(Selu, {"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}),
    PROTRAIN_ROW(Softplus),
    PROTRAIN_ROW(Softsign),
    PROTRAIN_ROW(HardSigmoid, {"alpha", 0.2}, {"beta", 0.5}),
    PROTRAIN_ROW(HardSwish),
    PROTRAIN_ROW(Mish),
    PROTRAIN_ROW(Sin),
    PROTRAIN_ROW(Cos),
    PROTRAIN_ROW(Tan),
    PROTRAIN_ROW(Asin),
    PROTRAIN_ROW(Acos),
    PROTRAIN_ROW(Atan),
    PROTRAIN_ROW(Sinh),
    PROTRAIN_ROW(Cosh),
    PROTRAIN_ROW(Asinh),
    PROTRAIN_ROW(Acosh),
    PROTRAIN_ROW(Atanh),
    PROTRAIN_ROW(Gelu),
    PROTRAIN_ROW(GeluTanh),
    PROTRAIN_ROW(Silu),
    PROTRAIN_ROW(Clip, {"min", -kInfinity}, {"max", kInfinity}),
    PROTRAIN_ROW(ThresholdedRelu, {"alpha", 1}),
    PROTRAIN_ROW(Floor),
    PROTRAIN_ROW(Ceil),
    PROTRAIN_ROW(Round),
    PROTRAIN_ROW(Sign),
};
#undef PROTRAIN_ROW

const UnaryRow &row_of(const KernelRequest &request, std::string_view op) {
  if (op == "Gelu" && request.node.attributes.text("approximate", "none") == "tanh") op = "GeluTanh";
  const UnaryRow *found =
      std::find_if(std::begin(kUnaryRows), std::end(kUnaryRows), [&](const UnaryRow &r) { return r.op == op; });
  require(found != std::end(kUnaryRows), Code::unsupported, subject(request), "cuda has no kernel for {}", op);
  return *found;
}

Coefficients coefficients(const UnaryRow &row, const graph::Attributes &attributes) {
  auto read = [&](const Setting &setting) {
    return setting.attribute ? static_cast<float>(attributes.real(setting.attribute, setting.fallback)) : 0.0f;
  };
  return {read(row.a), read(row.b)};
}

template <typename T>
class Unary : public CudaKernel {
 public:
  Unary(const KernelRequest &request, const UnaryRow &row)
      : map_(row.maps<T>().value),
        k_(coefficients(row, request.node.attributes)),
        count_(element_count(request.outputs[0].shape)) {}

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, map_, pack_grid(count_, kPackOf<T>), input<T>(launch, 0), output<T>(launch, 0), count_, k_);
  }

 private:
  decltype(Maps<T>::value) map_;
  const Coefficients k_;
  const std::int64_t count_;
};

template <typename T>
class UnaryGrad : public CudaKernel {
 public:
  UnaryGrad(const KernelRequest &request, const UnaryRow &row)
      : map_(row.maps<T>().slope),
        k_(coefficients(row, request.node.attributes)),
        count_(element_count(request.outputs[0].shape)) {}

  void run(Stream stream, const Launch &launch) override {
    cuda::launch(stream, map_, pack_grid(count_, kPackOf<T>), input<T>(launch, 0), input<T>(launch, 1),
                 output<T>(launch, 0), count_, k_);
  }

 private:
  decltype(Maps<T>::slope) map_;
  const Coefficients k_;
  const std::int64_t count_;
};

// Operators with a bool result. The coefficients of IsInf say whether positive (a) and negative (b) infinities count.
enum class Test : std::uint8_t { is_not, is_nan, is_infinite };

template <typename T>
__device__ bool holds(Test test, T element, Coefficients k) {
  if constexpr (std::is_same_v<T, std::uint8_t>) {
    return element == 0;
  } else {
    const float x = widened(element);
    if (test == Test::is_nan) return x != x;
    return (x == INFINITY && k.a != 0) || (x == -INFINITY && k.b != 0);
  }
}

template <typename T>
class Predicate : public CudaKernel {
 public:
  explicit Predicate(const KernelRequest &request)
      : test_(request.node.op == "Not"     ? Test::is_not
              : request.node.op == "IsNaN" ? Test::is_nan
                                           : Test::is_infinite),
        count_(element_count(request.outputs[0].shape)) {
    const graph::Attributes &attributes = request.node.attributes;
    k_ = {static_cast<float>(attributes.integer("detect_positive", 1)),
          static_cast<float>(attributes.integer("detect_negative", 1))};
  }

  void run(Stream stream, const Launch &launch) override {
    const T *x = input<T>(launch, 0);
    bool *y = output<bool>(launch, 0);
    each(stream, count_, [x, y, test = test_, k = k_] __device__(std::int64_t i) { y[i] = holds(test, x[i], k); });
  }

 private:
  const Test test_;
  Coefficients k_;
  const std::int64_t count_;
};
}  // namespace

KernelPtr make_unary(const KernelRequest &request, DeviceState &) {
  const graph::Type &operand = request.inputs.at(0);
  const std::string &op = request.node.op;
  if (op == "Not") {
    require_dtype(request, operand, DType::boolean);
    return std::make_unique<Predicate<std::uint8_t>>(request);
  }
  return by_float(request, operand, [&]<typename T>(T) -> KernelPtr {
    if (op == "IsNaN" || op == "IsInf") return std::make_unique<Predicate<T>>(request);
    return std::make_unique<Unary<T>>(request, row_of(request, op));
  });
}

KernelPtr make_unary_grad(const KernelRequest &request, DeviceState &) {
  std::string_view op = request.node.op;
  op.remove_suffix(std::string_view("Grad").size());
  for (const graph::Type &operand : request.inputs) require_dtype(request, operand, request.inputs[0].dtype);
  return by_float(request, request.inputs.at(0), [&]<typename T>(T) -> KernelPtr {
    return std::make_unique<UnaryGrad<T>>(request, row_of(request, op));
  });
}

}  // namespace protrain::backend::cuda
