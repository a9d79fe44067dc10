// Elementwise functions of one operand, and the gradient of each: F(x) -> y and FGrad(dy, x) -> dx.
#include <cmath>
#include <numbers>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

// The values of a node's attributes: `a` is the value of the attribute that Function::first names, and `b` the value of
// the attribute that Function::second names.
struct Coefficients {
  double a = 0, b = 0;
};

// The name of an attribute, and its value for nodes that lack it.
struct AttributeDefault {
  const char *attribute = nullptr;
  double fallback = 0;
};

// A function and its derivative, which is called slope here. At a kink, the derivative is the one that PyTorch uses.
struct Function {
  const char *name;
  const char *gradient_name;  // nullptr: the operator is flat or file_only
  double (*value)(double x, Coefficients);
  double (*slope)(double x, Coefficients);
  AttributeDefault first = {}, second = {};
};

using K = Coefficients;

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }
double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double normal_pdf(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::numbers::pi); }
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
double is(bool holds) { return holds ? 1 : 0; }
double clamp(double x, double low, double high) { return x < low ? low : x > high ? high : x; }  // NaN stays

// The tanh approximation of GELU: x/2 (1 + tanh(u)), u = k (x + c x^3), with the constants k and c below.
constexpr double kGeluK = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluC = 0.044715;
double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(kGeluK * (x + kGeluC * x * x * x))); }
double gelu_tanh_slope(double x) {
  const double t = std::tanh(kGeluK * (x + kGeluC * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kGeluK * (1 + 3 * kGeluC * x * x);
}

double mish_slope(double x, K) {
  const double t = std::tanh(softplus(x));
  return t + x * (1 - t * t) * sigmoid(x);
}

constexpr AttributeDefault kAlpha1 = {"alpha", 1};

// clang-format off
const Function kFunctions[] = {
    {"Neg", "NegGrad", [](double x, K) { return -x; }, [](double, K) { return -1.0; }},
    {"Abs", "AbsGrad", [](double x, K) { return std::fabs(x); }, [](double x, K) { return sign(x); }},
    {"Exp", "ExpGrad", [](double x, K) { return std::exp(x); }, [](double x, K) { return std::exp(x); }},
    {"Log", "LogGrad", [](double x, K) { return std::log(x); }, [](double x, K) { return 1 / x; }},
    {"Sqrt", "SqrtGrad", [](double x, K) { return std::sqrt(x); }, [](double x, K) { return 0.5 / std::sqrt(x); }},
    {"Reciprocal", "ReciprocalGrad", [](double x, K) { return 1 / x; }, [](double x, K) { return -1 / (x * x); }},
    {"Erf", "ErfGrad", [](double x, K) { return std::erf(x); },
     [](double x, K) { return 2 * std::numbers::inv_sqrtpi * std::exp(-x * x); }},
    {"Tanh", "TanhGrad", [](double x, K) { return std::tanh(x); },
     [](double x, K) { return 1 - std::tanh(x) * std::tanh(x); }},
    {"Sigmoid", "SigmoidGrad", [](double x, K) { return sigmoid(x); },
     [](double x, K) { return sigmoid(x) * sigmoid(-x); }},
    {"Relu", "ReluGrad", [](double x, K) { return x < 0 ? 0.0 : x; }, [](double x, K) { return is(x > 0); }},
    {"LeakyRelu", "LeakyReluGrad", [](double x, K k) { return x >= 0 ? x : k.a * x; },
     [](double x, K k) { return x > 0 ? 1.0 : k.a; }, {"alpha", 0.01}},
    {"Elu", "EluGrad", [](double x, K k) { return x > 0 ? x : k.a * std::expm1(x); },
     [](double x, K k) { return x > 0 ? 1.0 : k.a * std::exp(x); }, kAlpha1},
    {"Celu", "CeluGrad", [](double x, K k) { return x > 0 ? x : k.a * std::expm1(x / k.a); },
     [](double x, K k) { return x > 0 ? 1.0 : std::exp(x / k.a); }, kAlpha1},
    {"Selu", "SeluGrad", [](double x, K k) { return k.b * (x > 0 ? x : k.a * std::expm1(x)); },
     [](double x, K k) { return k.b * (x > 0 ? 1.0 : k.a * std::exp(x)); },
     {"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}},
    {"Softplus", "SoftplusGrad", [](double x, K) { return softplus(x); }, [](double x, K) { return sigmoid(x); }},
    {"Softsign", "SoftsignGrad", [](double x, K) { return x / (1 + std::fabs(x)); },
     [](double x, K) { return 1 / ((1 + std::fabs(x)) * (1 + std::fabs(x))); }},
    {"HardSigmoid", "HardSigmoidGrad", [](double x, K k) { return clamp(k.a * x + k.b, 0, 1); },
     [](double x, K k) { return k.a * x + k.b > 0 && k.a * x + k.b < 1 ? k.a : 0.0; }, {"alpha", 0.2}, {"beta", 0.5}},
    {"HardSwish", "HardSwishGrad", [](double x, K) { return x * clamp(x / 6 + 0.5, 0, 1); },
     [](double x, K) { return x <= -3 ? 0.0 : x >= 3 ? 1.0 : x / 3 + 0.5; }},
    {"Mish", "MishGrad", [](double x, K) { return x * std::tanh(softplus(x)); }, mish_slope},
    {"Sin", "SinGrad", [](double x, K) { return std::sin(x); }, [](double x, K) { return std::cos(x); }},
    {"Cos", "CosGrad", [](double x, K) { return std::cos(x); }, [](double x, K) { return -std::sin(x); }},
    {"Tan", "TanGrad", [](double x, K) { return std::tan(x); },
     [](double x, K) { return 1 / (std::cos(x) * std::cos(x)); }},
    {"Asin", "AsinGrad", [](double x, K) { return std::asin(x); },
     [](double x, K) { return 1 / std::sqrt(1 - x * x); }},
    {"Acos", "AcosGrad", [](double x, K) { return std::acos(x); },
     [](double x, K) { return -1 / std::sqrt(1 - x * x); }},
    {"Atan", "AtanGrad", [](double x, K) { return std::atan(x); }, [](double x, K) { return 1 / (1 + x * x); }},
    {"Sinh", "SinhGrad", [](double x, K) { return std::sinh(x); }, [](double x, K) { return std::cosh(x); }},
    {"Cosh", "CoshGrad", [](double x, K) { return std::cosh(x); }, [](double x, K) { return std::sinh(x); }},
    {"Asinh", "AsinhGrad", [](double x, K) { return std::asinh(x); },
     [](double x, K) { return 1 / std::sqrt(x * x + 1); }},
    {"Acosh", "AcoshGrad", [](double x, K) { return std::acosh(x); },
     [](double x, K) { return 1 / std::sqrt(x * x - 1); }},
    {"Atanh", "AtanhGrad", [](double x, K) { return std::atanh(x); }, [](double x, K) { return 1 / (1 - x * x); }},
    {"Gelu", "GeluGrad", [](double x, K k) { return k.a != 0 ? gelu_tanh(x) : x * normal_cdf(x); },
     [](double x, K k) { return k.a != 0 ? gelu_tanh_slope(x) : normal_cdf(x) + x * normal_pdf(x); }},
    {"Silu", "SiluGrad", [](double x, K) { return x * sigmoid(x); },
     [](double x, K) { return sigmoid(x) * (1 + x * sigmoid(-x)); }},
    {"Swish", nullptr, [](double x, K k) { return x * sigmoid(k.a * x); }, nullptr, kAlpha1},
    {"Clip", "ClipGrad", [](double x, K k) { return std::min(std::max(x, k.a), k.b); },
     [](double x, K k) { return is(x > k.a && x < k.b); }, {"min", -INFINITY}, {"max", INFINITY}},
    {"ThresholdedRelu", "ThresholdedReluGrad", [](double x, K k) { return x > k.a || std::isnan(x) ? x : 0.0; },
     [](double x, K k) { return is(x > k.a); }, kAlpha1},
    {"Floor", nullptr, [](double x, K) { return std::floor(x); }, nullptr},
    {"Ceil", nullptr, [](double x, K) { return std::ceil(x); }, nullptr},
    {"Round", nullptr, [](double x, K) { return std::nearbyint(x); }, nullptr},
    {"Sign", nullptr, [](double x, K) { return sign(x); }, nullptr},
};

// A function that also takes integers. `low` and `high` are the bounds of Clip.
struct IntegerFunction {
  std::string_view name;
  std::int64_t (*value)(std::int64_t x, std::int64_t low, std::int64_t high);
};
const IntegerFunction kIntegerFunctions[] = {
    {"Neg", [](std::int64_t x, std::int64_t, std::int64_t) { return x == INT64_MIN ? x : -x; }},
    {"Abs", [](std::int64_t x, std::int64_t, std::int64_t) { return x < 0 && x != INT64_MIN ? -x : x; }},
    {"Sign", [](std::int64_t x, std::int64_t, std::int64_t) { return std::int64_t{x > 0} - std::int64_t{x < 0}; }},
    {"Relu", [](std::int64_t x, std::int64_t, std::int64_t) { return std::max<std::int64_t>(x, 0); }},
    {"Clip", [](std::int64_t x, std::int64_t low, std::int64_t high) { return std::min(std::max(x, low), high); }},
};
// clang-format on

const Function &function_of(const Node &node) {
  for (const Function &function : kFunctions)
    if (node.op == function.name || (function.gradient_name != nullptr && node.op == function.gradient_name))
      return function;
  fail(Code::internal, node.name, "{} is not a function of one operand", node.op);
}

const IntegerFunction *integer_function_of(const Node &node) {
  const auto found = std::ranges::find(kIntegerFunctions, std::string_view(node.op), &IntegerFunction::name);
  return found == std::end(kIntegerFunctions) ? nullptr : found;
}

Coefficients coefficients_of(const Function &function, const Attributes &attributes) {
  const auto read = [&](const AttributeDefault &named) {
    return named.attribute == nullptr ? 0 : attributes.real(named.attribute, named.fallback);
  };
  if (std::string_view(function.name) == "Gelu") return {is(attributes.text("approximate", "none") == "tanh"), 0};
  return {read(function.first), read(function.second)};
}

std::vector<Type> infer_unary(const NodeTypes &types) {
  const Type &x = types.input(0);
  const bool takes = is_float(x.dtype) || (is_integer(x.dtype) && integer_function_of(types.node) != nullptr);
  require(takes, Code::type, types.subject(), "{} does not take {}", types.node.op, name_of(x.dtype));
  return {x};
}

std::vector<Type> infer_slope(const NodeTypes &types) {
  require(types.input(0) == types.input(1), Code::shape, types.subject(),
          "{} takes two operands of one type, not {} and {}", types.node.op, to_text(types.input(0)),
          to_text(types.input(1)));
  return {types.input(0)};
}

std::vector<Array> evaluate_integers(const Node &node, const Array &x, const Type &type) {
  // `min` and `max` were inputs in the file. An integer scalar became an attribute that is a list of one element.
  const auto bound = [&](const char *name, std::int64_t fallback) {
    return node.attributes.has(name) ? node.attributes.integers(name).at(0) : fallback;
  };
  const std::int64_t low = bound("min", INT64_MIN), high = bound("max", INT64_MAX);
  const auto value = integer_function_of(node)->value;
  const std::array<const Array *, 1> operands = {&x};
  return {map_elements<std::int64_t>(type, operands, [=](std::int64_t v) { return value(v, low, high); })};
}

std::vector<Array> evaluate_unary(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  if (!is_float(out[0].dtype)) return evaluate_integers(node, *in[0], out[0]);
  const Function &function = function_of(node);
  const Coefficients k = coefficients_of(function, node.attributes);
  const std::array<const Array *, 1> operands = {in[0]};
  return {map_elements<double>(out[0], operands, [&](double x) { return function.value(x, k); })};
}

std::vector<Array> evaluate_slope(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Function &function = function_of(node);
  const Coefficients k = coefficients_of(function, node.attributes);
  const std::array<const Array *, 2> operands = {in[0], in[1]};
  return {map_elements<double>(out[0], operands, [&](double dy, double x) { return dy * function.slope(x, k); })};
}

void differentiate_unary(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  const char *gradient = function_of(node).gradient_name;
  builder.contribute(node.inputs[0], builder.emit(gradient, {dy, node.inputs[0]}, node.attributes));
}

std::vector<Type> infer_test(const NodeTypes &types) { return {{DType::boolean, float_input(types, 0).shape}}; }

std::vector<Type> infer_not(const NodeTypes &types) {
  require(types.input(0).dtype == DType::boolean, Code::type, types.subject(), "Not takes bool, not {}",
          name_of(types.input(0).dtype));
  return {types.input(0)};
}

std::vector<Array> evaluate_not(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  const std::array<const Array *, 1> operands = {in[0]};
  return {map_elements<std::int64_t>(out[0], operands, [](std::int64_t x) { return x == 0; })};
}

std::vector<Array> evaluate_is_nan(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  const std::array<const Array *, 1> operands = {in[0]};
  return {map_elements<double>(out[0], operands, [](double x) { return std::isnan(x); })};
}

std::vector<Array> evaluate_is_inf(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const bool negative = node.attributes.integer("detect_negative", 1) != 0;
  const bool positive = node.attributes.integer("detect_positive", 1) != 0;
  const std::array<const Array *, 1> operands = {in[0]};
  return {
      map_elements<double>(out[0], operands, [&](double x) { return std::isinf(x) && (x > 0 ? positive : negative); })};
}

}  // namespace

Family unary_family() {
  Family family;
  for (const Function &function : kFunctions) {
    const bool flat = function.gradient_name == nullptr;
    Op op{.name = function.name,
          .infer = infer_unary,
          .evaluate = evaluate_unary,
          .gradient = flat ? nullptr : differentiate_unary,
          .flat = flat};
    if (op.name == "Clip") op.absorbed = {{1, "min"}, {2, "max"}};
    if (op.name == "Swish") {  // canonicalization turns it into Silu, or Mul and Sigmoid
      op.flat = false;
      op.file_only = true;
    }
    family.push_back(std::move(op));
    if (!flat) family.push_back({.name = function.gradient_name, .infer = infer_slope, .evaluate = evaluate_slope});
  }
  family.push_back({.name = "Shrink", .infer = same_as_input, .file_only = true});
  family.push_back({.name = "Not", .infer = infer_not, .evaluate = evaluate_not});
  family.push_back({.name = "IsNaN", .infer = infer_test, .evaluate = evaluate_is_nan});
  family.push_back({.name = "IsInf", .infer = infer_test, .evaluate = evaluate_is_inf});
  for (Op &op : family) op.elementwise = true;
  return family;
}

}  // namespace protrain::ops
