// Elementwise functions of one operand, and the gradient of each: F(x) -> y and FGrad(dy, x) -> dx.
#include <cmath>
#include <numbers>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_pdf(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }

// The tanh approximation of GELU: x/2 (1 + tanh(k (x + c x^3))).
constexpr double kGeluK = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluC = 0.044715;
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(kGeluK * (x + kGeluC * x * x * x))); }
double gelu_tanh_slope(double x) {
  const double t = std::tanh(kGeluK * (x + kGeluC * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGeluK * (1 + 3 * kGeluC * x * x);
}

constexpr double kSeluAlpha = 1.67326319217681884765625;  // ONNX's defaults
constexpr double kSeluGamma = 1.05070102214813232421875;

bool is_tanh(const Attributes &attributes) { return attributes.text("approximate", "none") == "tanh"; }

// A function and its slope, both of x and the node's attributes.
struct Function {
  const char *name;
  const char *gradient_name;
  double (*value)(double x, const Attributes &attributes);
  double (*slope)(double x, const Attributes &attributes);  // nullptr: zero wherever it is defined
};

double clip_low(const Attributes &a) { return a.real("min", -INFINITY); }
double clip_high(const Attributes &a) { return a.real("max", INFINITY); }

using A = const Attributes &;
const Function kFunctions[] = {
    {"Neg", "NegGrad", [](double x, A) { return -x; }, [](double, A) { return -1.0; }},
    {"Abs", "AbsGrad", [](double x, A) { return std::fabs(x); },
     [](double x, A) { return static_cast<double>((x > 0) - (x < 0)); }},
    {"Exp", "ExpGrad", [](double x, A) { return std::exp(x); }, [](double x, A) { return std::exp(x); }},
    {"Log", "LogGrad", [](double x, A) { return std::log(x); }, [](double x, A) { return 1 / x; }},
    {"Sqrt", "SqrtGrad", [](double x, A) { return std::sqrt(x); }, [](double x, A) { return 0.5 / std::sqrt(x); }},
    {"Reciprocal", "ReciprocalGrad", [](double x, A) { return 1 / x; }, [](double x, A) { return -1 / (x * x); }},
    {"Erf", "ErfGrad", [](double x, A) { return std::erf(x); },
     [](double x, A) { return 2 / std::sqrt(std::numbers::pi) * std::exp(-x * x); }},
    {"Tanh", "TanhGrad", [](double x, A) { return std::tanh(x); },
     [](double x, A) { return 1 - std::tanh(x) * std::tanh(x); }},
    {"Sigmoid", "SigmoidGrad", [](double x, A) { return sigmoid(x); },
     [](double x, A) { return sigmoid(x) * sigmoid(-x); }},
    {"Relu", "ReluGrad", [](double x, A) { return x > 0 || std::isnan(x) ? x : 0.0; },
     [](double x, A) { return x > 0 ? 1.0 : 0.0; }},
    {"LeakyRelu", "LeakyReluGrad", [](double x, A a) { return x >= 0 ? x : a.real("alpha", 0.01) * x; },
     [](double x, A a) { return x > 0 ? 1.0 : a.real("alpha", 0.01); }},
    {"Elu", "EluGrad", [](double x, A a) { return x > 0 ? x : a.real("alpha", 1) * std::expm1(x); },
     [](double x, A a) { return x > 0 ? 1.0 : a.real("alpha", 1) * std::exp(x); }},
    {"Celu", "CeluGrad",
     [](double x, A a) { return x > 0 ? x : a.real("alpha", 1) * std::expm1(x / a.real("alpha", 1)); },
     [](double x, A a) { return x > 0 ? 1.0 : std::exp(x / a.real("alpha", 1)); }},
    {"Selu", "SeluGrad",
     [](double x, A a) {
       return a.real("gamma", kSeluGamma) * (x > 0 ? x : a.real("alpha", kSeluAlpha) * std::expm1(x));
     },
     [](double x, A a) {
       return a.real("gamma", kSeluGamma) * (x > 0 ? 1 : a.real("alpha", kSeluAlpha) * std::exp(x));
     }},
    {"Softplus", "SoftplusGrad", [](double x, A) { return softplus(x); }, [](double x, A) { return sigmoid(x); }},
    {"Softsign", "SoftsignGrad", [](double x, A) { return x / (1 + std::fabs(x)); },
     [](double x, A) { return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x))); }},
    {"HardSigmoid", "HardSigmoidGrad",
     [](double x, A a) { return std::clamp(a.real("alpha", 0.2) * x + a.real("beta", 0.5), 0.0, 1.0); },
     [](double x, A a) {
       const double y = a.real("alpha", 0.2) * x + a.real("beta", 0.5);
       return y > 0 && y < 1 ? a.real("alpha", 0.2) : 0.0;
     }},
    {"HardSwish", "HardSwishGrad", [](double x, A) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); },
     [](double x, A) { return x <= -3  ? 0.0
                              : x >= 3 ? 1.0
                                       : x / 3 + 0.5; }},
    {"Mish", "MishGrad", [](double x, A) { return x * std::tanh(softplus(x)); },
     [](double x, A) {
       const double t = std::tanh(softplus(x));
       return t + x * (1 - t * t) * sigmoid(x);
     }},
    {"Sin", "SinGrad", [](double x, A) { return std::sin(x); }, [](double x, A) { return std::cos(x); }},
    {"Cos", "CosGrad", [](double x, A) { return std::cos(x); }, [](double x, A) { return -std::sin(x); }},
    {"Gelu", "GeluGrad", [](double x, A a) { return is_tanh(a) ? gelu_tanh(x) : x * normal_cdf(x); },
     [](double x, A a) { return is_tanh(a) ? gelu_tanh_slope(x) : normal_cdf(x) + x * normal_pdf(x); }},
    {"Silu", "SiluGrad", [](double x, A) { return x * sigmoid(x); },
     [](double x, A) { return sigmoid(x) * (1 + x * sigmoid(-x)); }},
    {"Swish", nullptr, [](double x, A a) { return x * sigmoid(a.real("alpha", 1) * x); }, nullptr},
    {"Clip", "ClipGrad", [](double x, A a) { return std::min(std::max(x, clip_low(a)), clip_high(a)); },
     [](double x, A a) { return x >= clip_low(a) && x <= clip_high(a) ? 1.0 : 0.0; }},
    {"ThresholdedRelu", "ThresholdedReluGrad", [](double x, A a) { return x > a.real("alpha", 1) ? x : 0.0; },
     [](double x, A a) { return x > a.real("alpha", 1) ? 1.0 : 0.0; }},
    {"Floor", nullptr, [](double x, A) { return std::floor(x); }, nullptr},
    {"Ceil", nullptr, [](double x, A) { return std::ceil(x); }, nullptr},
    {"Round", nullptr, [](double x, A) { return std::nearbyint(x); }, nullptr},
    {"Sign", nullptr, [](double x, A) { return static_cast<double>((x > 0) - (x < 0)); }, nullptr},
};

const Function &function_of(const Node &node) {
  for (const Function &function : kFunctions)
    if (node.op == function.name || (function.gradient_name != nullptr && node.op == function.gradient_name))
      return function;
  fail(Code::internal, node.name, "{} is not a function of one operand", node.op);
}

std::vector<Type> infer_same(const NodeTypes &types) {
  const Type &x = types.input(0);
  const bool numeric = is_float(x.dtype) || is_integer(x.dtype);
  require(numeric, Code::type, types.subject(), "{} does not take {}", types.node.op, name_of(x.dtype));
  return {x};
}

std::vector<Type> infer_gradient(const NodeTypes &types) {
  require(types.input(0) == types.input(1), Code::shape, types.subject(),
          "{} takes two operands of one type, not {} and {}", types.node.op, to_text(types.input(0)),
          to_text(types.input(1)));
  return {types.input(0)};
}

std::vector<Array> evaluate_value(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Function &function = function_of(node);
  const std::array<const Array *, 1> operands = {in[0]};
  return {map_elements<double>(out[0], operands, [&](double x) { return function.value(x, node.attributes); })};
}

std::vector<Array> evaluate_slope(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Function &function = function_of(node);
  const std::array<const Array *, 2> operands = {in[0], in[1]};
  return {map_elements<double>(out[0], operands,
                               [&](double dy, double x) { return dy * function.slope(x, node.attributes); })};
}

void differentiate(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  const Function &function = function_of(node);
  if (dy == ValueId::none || !builder.wants(node.inputs[0])) return;
  builder.contribute(node.inputs[0], builder.emit(function.gradient_name, {dy, node.inputs[0]}, node.attributes));
}

void differentiate_step(GradientBuilder &, const Node &) {}  // flat wherever it has a slope: contributes nothing

// Not, IsNaN, IsInf: to bool.
std::vector<Type> infer_boolean(const NodeTypes &types) { return {{DType::boolean, types.input(0).shape}}; }

std::vector<Array> evaluate_boolean(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const std::array<const Array *, 1> operands = {in[0]};
  return {map_elements<double>(out[0], operands, [&](double x) -> std::int64_t {
    return node.op == "Not" ? x == 0 : node.op == "IsNaN" ? std::isnan(x) : std::isinf(x);
  })};
}

}  // namespace

Family unary_family() {
  Family family;
  for (const Function &function : kFunctions) {
    const bool flat = function.slope == nullptr;
    Op op{.name = function.name,
          .infer = infer_same,
          .evaluate = evaluate_value,
          .gradient = flat ? differentiate_step : differentiate};
    if (op.name == "Clip") op.absorbed = {{1, "min"}, {2, "max"}};
    if (op.name == "Swish") op.gradient = nullptr;  // becomes Silu, or Mul and Sigmoid
    family.push_back(std::move(op));
    if (!flat) family.push_back({.name = function.gradient_name, .infer = infer_gradient, .evaluate = evaluate_slope});
  }
  for (const char *name : {"Not", "IsNaN", "IsInf"})
    family.push_back({.name = name, .infer = infer_boolean, .evaluate = evaluate_boolean});
  return family;
}

}  // namespace protrain::ops
