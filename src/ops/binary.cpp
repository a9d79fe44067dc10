// Broadcasting operators of two operands: arithmetic, comparison, logic; and Where.
#include <cmath>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

void require_equal_dtypes(const NodeTypes &types, std::size_t a, std::size_t b) {
  require(types.input(a).dtype == types.input(b).dtype, Code::type, types.subject(),
          "{} takes operands of one type, not {} and {}", types.node.op, name_of(types.input(a).dtype),
          name_of(types.input(b).dtype));
}

std::vector<Type> infer_arithmetic(const NodeTypes &types) {
  Type out = types.input(0);
  require(is_float(out.dtype) || is_integer(out.dtype), Code::type, types.subject(), "{} does not take {}",
          types.node.op, name_of(out.dtype));
  for (std::size_t i = 1; i < types.inputs.size(); ++i) {
    require_equal_dtypes(types, 0, i);
    out.shape = broadcast(out.shape, types.input(i).shape, types.subject());
  }
  return {out};
}

std::vector<Type> infer_pair(const NodeTypes &types) {
  require(types.inputs.size() == 2, Code::graph, types.subject(), "{} takes 2 operands, not {}", types.node.op,
          types.inputs.size());
  return infer_arithmetic(types);
}

// Infers the result of Pow, which has the type of the first operand. Unlike in other arithmetic, the second operand may
// have another type.
std::vector<Type> infer_pow(const NodeTypes &types) {
  return {{types.input(0).dtype, broadcast(types.input(0).shape, types.input(1).shape, types.subject())}};
}

std::vector<Type> infer_comparison(const NodeTypes &types) {
  require_equal_dtypes(types, 0, 1);
  return {{DType::boolean, broadcast(types.input(0).shape, types.input(1).shape, types.subject())}};
}

std::vector<Type> infer_logic(const NodeTypes &types) {
  require(types.input(0).dtype == DType::boolean, Code::type, types.subject(), "{} takes bool, not {}", types.node.op,
          name_of(types.input(0).dtype));
  return infer_comparison(types);
}

std::vector<Type> infer_where(const NodeTypes &types) {
  require(types.input(0).dtype == DType::boolean, Code::type, types.subject(), "the condition of Where is {}, not bool",
          name_of(types.input(0).dtype));
  require_equal_dtypes(types, 1, 2);
  const Shape values = broadcast(types.input(1).shape, types.input(2).shape, types.subject());
  return {{types.input(1).dtype, broadcast(types.input(0).shape, values, types.subject())}};
}

// larger() and smaller() compute Max and Min. As in ONNX, the result is NaN if an operand is NaN.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }
double smaller(double a, double b) { return std::isnan(a) || a < b ? a : b; }

// Converts the result of unsigned arithmetic to a signed integer. So arithmetic wraps on overflow, as in two's
// complement.
std::int64_t wrap(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::int64_t quotient(std::int64_t a, std::int64_t b) {
  require(b != 0, Code::arg, "Div", "integer division by zero");
  return b == -1 ? wrap(0 - static_cast<std::uint64_t>(a)) : a / b;
}

std::int64_t floor_mod(std::int64_t a, std::int64_t b) {  // the result has the divisor's sign
  require(b != 0, Code::arg, "Mod", "integer division by zero");
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest == 0 || (rest < 0) == (b < 0) ? rest : rest + b;
}

std::int64_t trunc_mod(std::int64_t a, std::int64_t b) {  // the result has the dividend's sign
  require(b != 0, Code::arg, "Mod", "integer division by zero");
  return b == -1 ? 0 : a % b;
}

using Unsigned = std::uint64_t;

std::int64_t whole_power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {  // a fraction, which becomes 0, unless the base is 1 or -1
    require(base != 0, Code::arg, "Pow", "0 to the power of {}", exponent);
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return base == 1 ? 1 : 0;
  }
  Unsigned result = 1;
  for (auto square = static_cast<Unsigned>(base); exponent > 0; exponent /= 2, square *= square)
    if (exponent % 2 != 0) result *= square;
  return wrap(result);
}

struct Arithmetic {
  std::string_view name;
  double (*on_reals)(double, double);
  std::int64_t (*on_integers)(std::int64_t, std::int64_t);
};

const Arithmetic kArithmetic[] = {
    {"Add", [](double a, double b) { return a + b; },
     [](std::int64_t a, std::int64_t b) { return wrap(Unsigned(a) + Unsigned(b)); }},
    {"Sum", [](double a, double b) { return a + b; },
     [](std::int64_t a, std::int64_t b) { return wrap(Unsigned(a) + Unsigned(b)); }},
    {"Sub", [](double a, double b) { return a - b; },
     [](std::int64_t a, std::int64_t b) { return wrap(Unsigned(a) - Unsigned(b)); }},
    {"Mul", [](double a, double b) { return a * b; },
     [](std::int64_t a, std::int64_t b) { return wrap(Unsigned(a) * Unsigned(b)); }},
    {"Div", [](double a, double b) { return a / b; }, quotient},
    {"Max", larger, [](std::int64_t a, std::int64_t b) { return std::max(a, b); }},
    {"Min", smaller, [](std::int64_t a, std::int64_t b) { return std::min(a, b); }},
    {"Mod", [](double a, double b) { return a - b * std::floor(a / b); }, floor_mod},
    {"fmod", [](double a, double b) { return std::fmod(a, b); }, trunc_mod},
};

const Arithmetic &arithmetic_of(const Node &node) {
  const std::string_view name = node.attributes.integer("fmod", 0) != 0 ? std::string_view("fmod") : node.op;
  return *std::ranges::find(kArithmetic, name, &Arithmetic::name);
}

// Combines the operands one after the other, because Max, Min and Sum take any number of operands.
std::vector<Array> evaluate_arithmetic(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Arithmetic &arithmetic = arithmetic_of(node);
  Array result = in[0]->expanded(out[0].shape);
  for (std::size_t i = 1; i < in.size(); ++i) {
    const std::array<const Array *, 2> operands = {&result, in[i]};
    result = is_float(out[0].dtype) ? map_elements<double>(out[0], operands, arithmetic.on_reals)
                                    : map_elements<std::int64_t>(out[0], operands, arithmetic.on_integers);
  }
  return {result};
}

std::vector<Array> evaluate_mean(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  Node sum = node;
  sum.op = "Sum";
  const Array total = evaluate_arithmetic(sum, in, out)[0];
  const std::array<const Array *, 1> operands = {&total};
  return {map_elements<double>(out[0], operands, [&](double x) { return x / static_cast<double>(in.size()); })};
}

std::vector<Array> evaluate_pow(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  const std::array<const Array *, 2> operands = {in[0], in[1]};
  if (is_integer(out[0].dtype) && is_integer(in[1]->dtype()))
    return {map_elements<std::int64_t>(out[0], operands, whole_power)};
  return {map_elements<double>(out[0], operands, [](double a, double b) { return std::pow(a, b); })};
}

template <typename T>
using Predicate = std::int64_t (*)(T, T);

template <typename T>
Predicate<T> predicate_of(std::string_view op) {
  if (op == "Equal") return [](T a, T b) -> std::int64_t { return a == b; };
  if (op == "Less") return [](T a, T b) -> std::int64_t { return a < b; };
  if (op == "LessOrEqual") return [](T a, T b) -> std::int64_t { return a <= b; };
  if (op == "Greater") return [](T a, T b) -> std::int64_t { return a > b; };
  if (op == "GreaterOrEqual") return [](T a, T b) -> std::int64_t { return a >= b; };
  if (op == "And") return [](T a, T b) -> std::int64_t { return a != T{0} && b != T{0}; };
  if (op == "Or") return [](T a, T b) -> std::int64_t { return a != T{0} || b != T{0}; };
  return [](T a, T b) -> std::int64_t { return (a != T{0}) != (b != T{0}); };  // Xor
}

std::vector<Array> evaluate_comparison(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const std::array<const Array *, 2> operands = {in[0], in[1]};
  if (is_float(in[0]->dtype())) return {map_elements<double>(out[0], operands, predicate_of<double>(node.op))};
  return {map_elements<std::int64_t>(out[0], operands, predicate_of<std::int64_t>(node.op))};
}

std::vector<Array> evaluate_where(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  const std::array<const Array *, 3> operands = {in[0], in[1], in[2]};
  if (is_float(out[0].dtype))
    return {map_elements<double>(out[0], operands, [](double c, double a, double b) { return c != 0 ? a : b; })};
  return {map_elements<std::int64_t>(out[0], operands,
                                     [](std::int64_t c, std::int64_t a, std::int64_t b) { return c != 0 ? a : b; })};
}

// Sums `gradient` down to the shape of operand i, and contributes the sum to the gradient of this operand.
void give(GradientBuilder &builder, const Node &node, std::size_t i, ValueId gradient) {
  builder.contribute(node.inputs[i], sum_to(builder, gradient, builder.type(node.inputs[i]).shape));
}

void differentiate_add(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  if (dy == ValueId::none) return;
  if (builder.wants(node.inputs[0])) give(builder, node, 0, dy);
  if (!builder.wants(node.inputs[1])) return;
  const ValueId summed = sum_to(builder, dy, builder.type(node.inputs[1]).shape);
  builder.contribute(node.inputs[1], node.op == "Sub" ? builder.emit("Neg", {summed}) : summed);
}

void differentiate_mul(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  if (dy == ValueId::none) return;
  for (std::size_t i : {0, 1})
    if (builder.wants(node.inputs[i])) give(builder, node, i, builder.emit("Mul", {dy, node.inputs[1 - i]}));
}

void differentiate_div(GradientBuilder &builder, const Node &node) {  // y = a / b: da = dy / b, db = -dy y / b
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  if (dy == ValueId::none) return;
  const ValueId scaled = builder.emit("Div", {dy, node.inputs[1]});
  if (builder.wants(node.inputs[0])) give(builder, node, 0, scaled);
  if (builder.wants(node.inputs[1]))
    give(builder, node, 1, builder.emit("Neg", {builder.emit("Mul", {scaled, node.outputs[0]})}));
}

// Emits the gradient of y = a^b with respect to a: dL/da = dy b a^(b-1). Where b is 0, emits 0, because the formula
// would give NaN if a is 0 as well. If b is a single constant number, b - 1 is a constant too. If b is 2, a^(b-1) is a
// itself and needs no Pow.
void differentiate_base(GradientBuilder &builder, const Node &node, ValueId dy) {
  const ValueId a = node.inputs[0], b = node.inputs[1];
  const DType dtype = builder.type(a).dtype;
  const graph::Value &exponent = builder.value(b);
  if (exponent.origin != graph::Origin::constant || exponent.array.stored_count() != 1) {
    const ValueId factor = is_float(exponent.type.dtype) && exponent.type.dtype == dtype
                               ? b
                               : builder.emit("Cast", {b}, {{"to", std::string(name_of(dtype))}});
    const ValueId zero = builder.constant({dtype, {}}, 0);
    const ValueId less = builder.emit("Sub", {factor, builder.constant({dtype, {}}, 1)});
    const ValueId slope = builder.emit("Mul", {factor, builder.emit("Pow", {a, less})});
    const ValueId finite = builder.emit("Where", {builder.emit("Equal", {factor, zero}), zero, slope});
    return give(builder, node, 0, builder.emit("Mul", {dy, finite}));
  }
  const double power = exponent.array.stored_double(0);
  if (power == 0) return;
  const ValueId scaled = builder.emit("Mul", {dy, builder.constant({dtype, {}}, power)});
  if (power == 1) return give(builder, node, 0, scaled);
  const ValueId rest = power == 2 ? a : builder.emit("Pow", {a, builder.constant({dtype, {}}, power - 1)});
  give(builder, node, 0, builder.emit("Mul", {scaled, rest}));
}

// Emits the gradient of y = a^b with respect to b: dL/db = dy y log(a), and 0 where a is 0.
void differentiate_exponent(GradientBuilder &builder, const Node &node, ValueId dy) {
  const ValueId a = node.inputs[0];
  const ValueId zero = builder.constant({builder.type(a).dtype, {}}, 0);
  const ValueId slope = builder.emit("Mul", {node.outputs[0], builder.emit("Log", {a})});
  const ValueId finite = builder.emit("Where", {builder.emit("Equal", {a, zero}), zero, slope});
  give(builder, node, 1, builder.emit("Mul", {dy, finite}));
}

void differentiate_pow(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  if (dy == ValueId::none) return;
  if (builder.wants(node.inputs[0])) differentiate_base(builder, node, dy);
  if (builder.wants(node.inputs[1])) differentiate_exponent(builder, node, dy);
}

// Emits the gradients of Max and Min. The larger (Max) or smaller (Min) operand gets dy. Equal operands get half of it
// each, as in PyTorch.
void differentiate_choice(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  if (dy == ValueId::none) return;
  const ValueId zero = builder.constant({builder.type(dy).dtype, {}}, 0);
  const ValueId half = builder.emit("Mul", {dy, builder.constant({builder.type(dy).dtype, {}}, 0.5)});
  const ValueId tied = builder.emit("Equal", {node.inputs[0], node.inputs[1]});
  for (std::size_t i : {0, 1}) {
    if (!builder.wants(node.inputs[i])) continue;
    const char *won = node.op == "Max" ? "Greater" : "Less";
    const ValueId chosen = builder.emit(won, {node.inputs[i], node.inputs[1 - i]});
    const ValueId alone = builder.emit("Where", {chosen, dy, zero});
    give(builder, node, i, builder.emit("Where", {tied, half, alone}));
  }
}

void differentiate_where(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  if (dy == ValueId::none) return;
  const ValueId zero = builder.constant({builder.type(dy).dtype, {}}, 0);
  if (builder.wants(node.inputs[1])) give(builder, node, 1, builder.emit("Where", {node.inputs[0], dy, zero}));
  if (builder.wants(node.inputs[2])) give(builder, node, 2, builder.emit("Where", {node.inputs[0], zero, dy}));
}

}  // namespace

Family binary_family() {
  Family family;
  const auto arithmetic = [&](const char *name, void (*gradient)(GradientBuilder &, const Node &)) {
    const std::string_view any_number[] = {"Max", "Min", "Sum"};
    const bool takes_any = std::ranges::find(any_number, name) != std::end(any_number);
    family.push_back({.name = name,
                      .infer = takes_any ? infer_arithmetic : infer_pair,
                      .evaluate = evaluate_arithmetic,
                      .gradient = gradient,
                      .file_only = gradient == nullptr});
  };
  arithmetic("Add", differentiate_add);
  arithmetic("Sub", differentiate_add);
  arithmetic("Mul", differentiate_mul);
  arithmetic("Div", differentiate_div);
  arithmetic("Max", differentiate_choice);
  arithmetic("Min", differentiate_choice);
  arithmetic("Mod", nullptr);
  arithmetic("Sum", nullptr);  // canonicalization turns it into a chain of Add
  family.push_back({.name = "Mean", .infer = infer_arithmetic, .evaluate = evaluate_mean, .file_only = true});
  family.push_back(
      {.name = "Pow", .infer = infer_pow, .evaluate = evaluate_pow, .gradient = differentiate_pow, .wide = {1}});
  family.push_back({.name = "PRelu", .infer = infer_pair, .file_only = true});
  for (const char *name : {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
    family.push_back({.name = name, .infer = infer_comparison, .evaluate = evaluate_comparison});
  for (const char *name : {"And", "Or", "Xor"})
    family.push_back({.name = name, .infer = infer_logic, .evaluate = evaluate_comparison});
  family.push_back(
      {.name = "Where", .infer = infer_where, .evaluate = evaluate_where, .gradient = differentiate_where});
  for (Op &op : family) {
    op.elementwise = true;
    op.checks_values = op.name == "Div";  // whether an integer is divided by 0
  }
  return family;
}

}  // namespace protrain::ops
