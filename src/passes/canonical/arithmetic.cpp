// Rules for reductions, operators of any number of operands, and matrix products.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

// Returns the reduced axes, sorted, not negative. A node without axes reduces all axes, unless noop_with_empty_axes is
// set.
Integers reduced_axes(const Node &node, std::size_t rank) {
  Integers axes = node.attributes.integers("axes");
  for (std::int64_t &axis : axes) axis = static_cast<std::int64_t>(resolve_axis(axis, rank, node.name));
  if (axes.empty() && node.attributes.integer("noop_with_empty_axes", 0) == 0) {
    axes.resize(rank);
    std::iota(axes.begin(), axes.end(), 0);
  }
  std::ranges::sort(axes);
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

bool reduce(Canonical &c, Node &node) {
  if (node.inputs.size() != 1) return false;
  const Integers axes = reduced_axes(node, c.shape(node.inputs[0]).size());
  const Attributes attributes = {{"axes", axes}, {"keepdims", node.attributes.integer("keepdims", 1)}};
  if (axes.empty()) {
    c.pass(node, node.inputs[0]);
    return true;
  }
  if (same(node.attributes, attributes)) return false;
  c.become(node, node.op, node.inputs, attributes);
  return true;
}

bool is_float_reduction(const Canonical &c, const Node &node) {
  return node.inputs.size() == 1 && is_float(c.type(node.inputs[0]).dtype);
}

Attributes sum_attributes(const Node &node) {
  Attributes attributes;
  for (const char *key : {"axes", "keepdims", "noop_with_empty_axes"})
    if (node.attributes.has(key)) attributes.set(key, node.attributes.items().at(key));
  return attributes;
}

bool reduce_sum_square(Canonical &c, Node &node) {
  if (!is_float_reduction(c, node)) return false;
  const ValueId x = node.inputs[0];
  c.become(node, "ReduceSum", {c.add("Mul", {x, x})}, sum_attributes(node));
  return true;
}

bool reduce_l1(Canonical &c, Node &node) {
  if (!is_float_reduction(c, node)) return false;
  c.become(node, "ReduceSum", {c.add("Abs", node.inputs)}, sum_attributes(node));
  return true;
}

// Computes the square root of the sum of squares. The square root has no finite derivative at 0. As in PyTorch, the
// gradient is 0 there.
bool reduce_l2(Canonical &c, Node &node) {
  if (!is_float_reduction(c, node)) return false;
  const ValueId x = node.inputs[0];
  const ValueId sum = c.add("ReduceSum", {c.add("Mul", {x, x})}, sum_attributes(node));
  c.become(node, "Sqrt", {c.stopped_at_zero(sum)});
  return true;
}

bool reduce_log_sum(Canonical &c, Node &node) {
  if (!is_float_reduction(c, node)) return false;
  c.become(node, "Log", {c.add("ReduceSum", node.inputs, sum_attributes(node))});
  return true;
}

// Computes max + log(sum(exp(x - max))), so that no exponential overflows. The maximum is clipped to finite numbers,
// because -inf minus -inf is NaN. The result for a row of -inf is still -inf. The result for a single number is the
// number.
bool reduce_log_sum_exp(Canonical &c, Node &node) {
  if (!is_float_reduction(c, node)) return false;
  const ValueId x = node.inputs[0];
  const Integers axes = reduced_axes(node, c.shape(x).size());
  if (axes.empty()) {
    c.pass(node, x);
    return true;
  }
  const Attributes along = {{"axes", axes}, {"keepdims", std::int64_t{1}}};
  const Shape result = c.infer(node).at(0).shape;
  constexpr double kFinite = 0x1.FEp127;  // the largest bfloat16
  const ValueId most = c.add("Clip", {c.add("ReduceMax", {x}, along)}, {{"min", -kFinite}, {"max", kFinite}});
  const ValueId sum = c.add("ReduceSum", {c.add("Exp", {c.add("Sub", {x, most})})}, along);
  const ValueId total = c.add("Add", {most, c.add("Log", {sum})});
  c.become(node, "Reshape", {total}, {{"shape", result}});
  return true;
}

// Turns Max, Min and Sum into a chain of operators of two operands.
bool chain(Canonical &c, Node &node) {
  const std::string op = node.op == "Sum" ? "Add" : node.op;
  if (node.inputs.size() == 1) {
    c.pass(node, node.inputs[0]);
    return true;
  }
  if (node.inputs.size() == 2 && op == node.op) return false;
  ValueId left = node.inputs.at(0);
  for (std::size_t i = 1; i + 1 < node.inputs.size(); ++i) left = c.add(op, {left, node.inputs[i]});
  c.become(node, op, {left, node.inputs.back()});
  return true;
}

bool mean(Canonical &c, Node &node) {
  const double count = static_cast<double>(node.inputs.size());
  const ValueId sum = c.add("Sum", node.inputs);
  c.become(node, "Mul", {sum, c.scalar(c.type(sum).dtype, 1.0 / count)});
  return true;
}

// Multiplies the elements one after the other. A gradient computed as product / element would be wrong where an element
// is 0.
bool reduce_prod(Canonical &c, Node &node) {
  constexpr std::int64_t kMostFactors = 256;
  if (!is_float_reduction(c, node)) return reduce(c, node);
  const Shape result = c.infer(node).at(0).shape;
  ValueId product = node.inputs[0];
  if (c.constant_of(product) != nullptr) return reduce(c, node);  // it will be folded
  for (std::int64_t axis : reduced_axes(node, c.shape(product).size())) {
    const std::int64_t count = c.shape(product)[static_cast<std::size_t>(axis)];
    require(count > 0 && count <= kMostFactors, Code::unsupported, node.name,
            "a product of {} elements is not supported", count);
    const std::vector<ValueId> factors =
        count == 1
            ? std::vector<ValueId>{product}
            : c.add_all("Split", {product}, {{"axis", axis}, {"split", Integers(static_cast<std::size_t>(count), 1)}},
                        static_cast<std::size_t>(count));
    product = factors[0];
    for (std::size_t i = 1; i < factors.size(); ++i) product = c.add("Mul", {product, factors[i]});
  }
  c.become(node, "Reshape", {product}, {{"shape", result}});
  return true;
}

// Casts the exponent to the type of the base.
bool pow(Canonical &c, Node &node) {
  const DType base = c.type(node.inputs.at(0)).dtype, exponent = c.type(node.inputs.at(1)).dtype;
  if (!is_float(base) || base == exponent) return false;
  const ValueId power = c.add("Cast", {node.inputs[1]}, {{"to", std::string(name_of(base))}});
  c.become(node, "Pow", {node.inputs[0], power});
  return true;
}

// Returns the remainder of x / y for integers. It has the sign of x if `signed_like_x`, and the sign of y otherwise. A
// division of integers truncates, so x - y (x / y) has the sign of x.
ValueId integer_mod(Canonical &c, ValueId x, ValueId y, bool signed_like_x) {
  const ValueId rest = c.add("Sub", {x, c.add("Mul", {y, c.add("Div", {x, y})})});
  if (signed_like_x) return rest;
  const ValueId zero = c.scalar(c.type(x).dtype, 0);
  const ValueId opposed = c.add("Xor", {c.add("Less", {rest, zero}), c.add("Less", {y, zero})});
  const ValueId moved = c.add("And", {opposed, c.add("Not", {c.add("Equal", {rest, zero})})});
  return c.add("Where", {moved, c.add("Add", {rest, y}), rest});
}

// Without the attribute `fmod`, computes x - y floor(x / y). With `fmod`, the result has the sign of x: it is
// s (s x - |y| floor(s x / |y|)), where s is -1 for negative x and 1 otherwise. Sign(x) in place of s, and Abs(x) in
// place of s x, would make the gradient 0 where x is 0.
bool mod(Canonical &c, Node &node) {
  ValueId x = node.inputs.at(0), y = node.inputs.at(1);
  if (c.constant_of(x) != nullptr && c.constant_of(y) != nullptr) return false;
  const bool signed_like_x = node.attributes.integer("fmod", 0) != 0;
  if (!is_float(c.type(x).dtype)) {
    c.pass(node, integer_mod(c, x, y, signed_like_x));
    return true;
  }
  ValueId sign = ValueId::none;
  if (signed_like_x) {
    const DType dtype = c.type(x).dtype;
    sign = c.add("Where", {c.add("Less", {x, c.scalar(dtype, 0)}), c.scalar(dtype, -1), c.scalar(dtype, 1)});
    x = c.add("Mul", {x, sign});
    y = c.add("Abs", {y});
  }
  const ValueId whole = c.add("Floor", {c.add("Div", {x, y})});
  const ValueId rest = c.add("Sub", {x, c.add("Mul", {y, whole})});
  if (signed_like_x)
    c.become(node, "Mul", {rest, sign});
  else
    c.pass(node, rest);
  return true;
}

// Turns Abs, Neg, Relu and Sign of integers that depend on data into operators that have kernels for integers.
bool of_integers(Canonical &c, Node &node) {
  const ValueId x = node.inputs.at(0);
  const DType dtype = c.type(x).dtype;
  if (is_float(dtype) || c.constant_of(x) != nullptr) return false;
  if (node.op == "Relu") {
    c.become(node, "Max", {x, c.scalar(dtype, 0)});
  } else if (node.op == "Sign") {
    c.become(node, "Min", {c.add("Max", {x, c.scalar(dtype, -1)}), c.scalar(dtype, 1)});
  } else {
    const ValueId negative = c.add("Sub", {c.scalar(dtype, 0), x});
    if (node.op == "Abs")
      c.become(node, "Max", {x, negative});
    else
      c.pass(node, negative);
  }
  return true;
}

// Computes x where x is positive, and slope * x elsewhere. So the derivative at 0 is the slope, as in PyTorch.
bool prelu(Canonical &c, Node &node) {
  const ValueId x = node.inputs.at(0);
  const ValueId sloped = c.add("LessOrEqual", {x, c.scalar(c.type(x).dtype, 0)});
  c.become(node, "Where", {sloped, c.add("Mul", {x, node.inputs.at(1)}), x});
  return true;
}

// Gives 0 where |x| <= lambd. Elsewhere, moves x towards 0 by `bias`.
bool shrink(Canonical &c, Node &node) {
  const ValueId x = node.inputs.at(0);
  const DType dtype = c.type(x).dtype;
  if (!is_float(dtype)) return false;
  const double limit = node.attributes.real("lambd", 0.5), bias = node.attributes.real("bias", 0);
  const ValueId low = c.add("Less", {x, c.scalar(dtype, -limit)}), high = c.add("Greater", {x, c.scalar(dtype, limit)});
  const ValueId above = c.add("Where", {high, c.add("Sub", {x, c.scalar(dtype, bias)}), c.scalar(dtype, 0)});
  c.become(node, "Where", {low, c.add("Add", {x, c.scalar(dtype, bias)}), above});
  return true;
}

bool swish(Canonical &c, Node &node) {
  const ValueId x = node.inputs.at(0);
  const double alpha = node.attributes.real("alpha", 1.0);
  if (alpha == 1.0) {
    c.become(node, "Silu", {x});
    return true;
  }
  const ValueId scaled = c.add("Mul", {x, c.scalar(c.type(x).dtype, alpha)});
  c.become(node, "Mul", {x, c.add("Sigmoid", {scaled})});
  return true;
}

// Returns a bound of a Clip as a constant. The bound is the attribute `name`: "min" or "max".
ValueId clip_bound(Canonical &c, const Node &node, const char *name, DType dtype) {
  if (is_float(dtype)) return c.scalar(dtype, node.attributes.real(name, 0));
  return c.rewriter().constant(graph::Array::from_integers({dtype, {}}, {node.attributes.integers(name).at(0)}));
}

// Turns a Clip into Max and Min if its bounds are computed, or if it clips integers that depend on data.
bool clip(Canonical &c, Node &node) {
  ValueId x = node.inputs.at(0);
  const DType dtype = c.type(x).dtype;
  if (node.inputs.size() == 1 && (is_float(dtype) || c.constant_of(x) != nullptr)) return false;
  if (node.attributes.has("min")) x = c.add("Max", {x, clip_bound(c, node, "min", dtype)});
  if (has(node, 1)) x = c.add("Max", {x, node.inputs[1]});
  if (node.attributes.has("max")) x = c.add("Min", {x, clip_bound(c, node, "max", dtype)});
  if (has(node, 2)) x = c.add("Min", {x, node.inputs[2]});
  c.pass(node, x);
  return true;
}

// Handles a MatMul with vectors. Makes each vector a matrix of one row or column, and reshapes the product to the
// node's result.
bool matmul(Canonical &c, Node &node) {
  const Shape a = c.shape(node.inputs.at(0)), b = c.shape(node.inputs.at(1));
  if (a.size() != 1 && b.size() != 1) return false;
  const Shape result = c.infer(node).at(0).shape;
  const ValueId left = a.size() == 1 ? c.reshape(node.inputs[0], {1, a[0]}) : node.inputs[0];
  const ValueId right = b.size() == 1 ? c.reshape(node.inputs[1], {b[0], 1}) : node.inputs[1];
  const ValueId product = c.add("MatMul", {left, right});
  c.become(node, "Reshape", {product}, {{"shape", result}});
  return true;
}

bool gemm(Canonical &c, Node &node) {
  const double alpha = node.attributes.real("alpha", 1.0), beta = node.attributes.real("beta", 1.0);
  Attributes attributes;
  if (node.attributes.integer("transA", 0) != 0) attributes.set("trans_a", std::int64_t{1});
  if (node.attributes.integer("transB", 0) != 0) attributes.set("trans_b", std::int64_t{1});
  if (alpha != 1.0) attributes.set("alpha", alpha);
  const Shape result = c.infer(node).at(0).shape;
  if (!has(node, 2) || beta == 0.0) {
    c.become(node, "MatMul", {node.inputs[0], node.inputs[1]}, attributes);
    return true;
  }
  const ValueId addend = node.inputs[2];
  const Shape shape = c.shape(addend);
  const std::int64_t columns = result.at(1);
  const bool row = !shape.empty() && shape.back() == columns && element_count(shape) == columns;
  if (beta == 1.0 && row) {
    c.become(node, "MatMul", {node.inputs[0], node.inputs[1], c.reshape(addend, {columns})}, attributes);
    return true;
  }
  const ValueId product = c.add("MatMul", {node.inputs[0], node.inputs[1]}, attributes);
  const ValueId scaled = beta == 1.0 ? addend : c.add("Mul", {addend, c.scalar(c.type(addend).dtype, beta)});
  c.become(node, "Add", {product, scaled});
  return true;
}

}  // namespace

Rules arithmetic_rules() {
  return {{"ReduceSum", reduce},
          {"ReduceMean", reduce},
          {"ReduceMax", reduce},
          {"ReduceMin", reduce},
          {"ReduceProd", reduce_prod},
          {"ReduceSumSquare", reduce_sum_square},
          {"ReduceL1", reduce_l1},
          {"ReduceL2", reduce_l2},
          {"ReduceLogSum", reduce_log_sum},
          {"ReduceLogSumExp", reduce_log_sum_exp},
          {"Max", chain},
          {"Min", chain},
          {"Sum", chain},
          {"Mean", mean},
          {"Pow", pow},
          {"Mod", mod},
          {"Abs", of_integers},
          {"Neg", of_integers},
          {"Relu", of_integers},
          {"Sign", of_integers},
          {"PRelu", prelu},
          {"Shrink", shrink},
          {"Swish", swish},
          {"Clip", clip},
          {"MatMul", matmul},
          {"Gemm", gemm}};
}

}  // namespace protrain::passes
