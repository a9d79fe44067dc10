#include "passes/pattern.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace protrain::passes {

namespace {

constexpr int kDeepest = 16;  // depth of the trees that formulas are read from

using Depth = int;

void multiply_out(const Rewriter &r, ValueId id, bool inverse, Depth depth, Product &product);

void multiply_node(const Rewriter &r, const Node &node, bool inverse, Depth depth, Product &product) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i)
    multiply_out(r, node.inputs[i], node.op != "Mul" && (i == 1 || node.op == "Reciprocal") ? !inverse : inverse,
                 depth + 1, product);
}

void multiply_out(const Rewriter &r, ValueId id, bool inverse, Depth depth, Product &product) {
  if (const auto constant = uniform(r, id); constant && r.shape(id).size() <= 1) {
    product.constant = inverse ? product.constant / *constant : product.constant * *constant;
    return;
  }
  const Node *node = r.producer(id);
  const bool spread = node != nullptr && r.uses(id) == 1 && depth < kDeepest;
  if (spread && (node->op == "Mul" || node->op == "Div" || node->op == "Reciprocal")) {
    multiply_node(r, *node, inverse, depth, product);
    return;
  }
  if (spread && node->op == "Pow") {
    const auto exponent = uniform(r, node->inputs.at(1));
    if (exponent && (*exponent == 2 || *exponent == 3)) {
      product.factors.insert(product.factors.end(), static_cast<std::size_t>(*exponent), {node->inputs[0], inverse});
      return;
    }
  }
  product.factors.push_back({id, inverse});
}

std::optional<Polynomial> multiplied(const Polynomial &a, const Polynomial &b) {
  Polynomial result = {};
  for (std::size_t i = 0; i < a.size(); ++i)
    for (std::size_t j = 0; j < b.size(); ++j) {
      if (i + j < result.size())
        result[i + j] += a[i] * b[j];
      else if (a[i] != 0 && b[j] != 0)
        return std::nullopt;
    }
  return result;
}

Polynomial sum(const Polynomial &a, const Polynomial &b, double sign) {
  Polynomial result = a;
  for (std::size_t i = 0; i < result.size(); ++i) result[i] += sign * b[i];
  return result;
}

std::optional<Polynomial> power(const Polynomial &base, double exponent) {
  if (exponent != 1 && exponent != 2 && exponent != 3) return std::nullopt;
  std::optional<Polynomial> result = base;
  for (int i = 1; result && i < static_cast<int>(exponent); ++i) result = multiplied(*result, base);
  return result;
}

std::optional<Polynomial> polynomial(const Rewriter &r, ValueId id, ValueId x, Depth depth) {
  if (id == x) return Polynomial{0, 1, 0, 0};
  if (const auto constant = uniform(r, id); constant && r.shape(id).size() <= 1) return Polynomial{*constant, 0, 0, 0};
  const Node *node = r.producer(id);
  if (node == nullptr || r.uses(id) != 1 || node->inputs.size() != 2 || depth > kDeepest) return std::nullopt;
  const auto a = polynomial(r, node->inputs[0], x, depth + 1);
  const auto b = polynomial(r, node->inputs[1], x, depth + 1);
  if (!a || !b) return std::nullopt;
  const bool b_constant = (*b)[1] == 0 && (*b)[2] == 0 && (*b)[3] == 0;
  if (node->op == "Add") return sum(*a, *b, 1);
  if (node->op == "Sub") return sum(*a, *b, -1);
  if (node->op == "Mul") return multiplied(*a, *b);
  if (node->op == "Div" && b_constant) return multiplied(*a, {1 / (*b)[0], 0, 0, 0});
  if (node->op == "Pow" && b_constant) return power(*a, (*b)[0]);
  return std::nullopt;
}

}  // namespace

bool near(double found, double wanted) { return std::abs(found - wanted) <= kFormulaTolerance * std::abs(wanted); }

std::optional<double> uniform(const Rewriter &r, ValueId id) {
  const graph::Array *array = r.constant_of(id);
  if (array == nullptr || array->stored_count() != 1) return std::nullopt;
  return array->stored_double(0);
}

const Node *made_by(const Rewriter &r, ValueId id, std::string_view op) {
  const Node *node = r.producer(id);
  return node != nullptr && node->op == op && node->outputs[0] == id ? node : nullptr;
}

const Node *made_for_one(const Rewriter &r, ValueId id, std::string_view op) {
  const Node *node = made_by(r, id, op);
  return node != nullptr && r.uses(id) == 1 ? node : nullptr;
}

std::optional<PlusConstant> plus_constant(const Rewriter &r, ValueId id) {
  const Node *add = made_for_one(r, id, "Add");
  if (add == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto constant = uniform(r, add->inputs[1 - i]);
    if (constant && r.shape(add->inputs[i]) == r.shape(id)) return PlusConstant{add->inputs[i], *constant};
  }
  return std::nullopt;
}

Product product_of(const Rewriter &r, ValueId id) {
  Product product;
  multiply_out(r, id, false, 0, product);
  return product;
}

Product product_of(const Rewriter &r, const Node &node) {
  Product product;
  multiply_node(r, node, false, 0, product);
  return product;
}

std::optional<Polynomial> polynomial_in(const Rewriter &r, ValueId id, ValueId x) { return polynomial(r, id, x, 0); }

std::optional<AxisPart> axis_part_of(const Rewriter &r, ValueId id) {
  const Node *node = r.producer(id);
  if (node == nullptr || node->inputs.size() != 1) return std::nullopt;
  const Shape shape = r.shape(node->inputs[0]);
  if (node->op == "Split") {
    const std::vector<std::int64_t> sizes = node->attributes.integers("split");
    const auto at = std::ranges::find(node->outputs, id) - node->outputs.begin();
    const std::int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + at, std::int64_t{0});
    return AxisPart{node->inputs[0], axis_of(r, *node, 0), begin, begin + sizes.at(static_cast<std::size_t>(at))};
  }
  const std::vector<std::int64_t> starts = node->attributes.integers("starts"),
                                  ends = node->attributes.integers("ends");
  std::vector<std::int64_t> axes = node->attributes.integers("axes"), steps = node->attributes.integers("steps");
  if (node->op != "Slice" || starts.size() != 1 || (!steps.empty() && steps[0] != 1)) return std::nullopt;
  const std::size_t axis = resolve_axis(axes.empty() ? 0 : axes[0], shape.size(), node->name);
  const std::int64_t extent = shape[axis];
  const auto bound = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + extent : at, 0, extent); };
  return AxisPart{node->inputs[0], axis, bound(starts[0]), bound(ends.at(0))};
}

bool trained(const Rewriter &r, ValueId id) {
  std::set<ValueId> seen;
  std::vector<ValueId> pending = {id};
  while (!pending.empty()) {
    const ValueId at = pending.back();
    pending.pop_back();
    if (at == ValueId::none || !is_float(r.type(at).dtype) || !seen.insert(at).second) continue;
    const graph::Value &value = r.value(at);
    if (value.origin == graph::Origin::initializer || graph::is_trained(value)) return true;
    if (const Node *node = r.producer(at)) pending.insert(pending.end(), node->inputs.begin(), node->inputs.end());
  }
  return false;
}

std::size_t axis_of(const Rewriter &r, const Node &node, std::int64_t fallback) {
  return resolve_axis(node.attributes.integer("axis", fallback), r.shape(node.inputs.at(0)).size(), node.name);
}

bool is_last_axis(const Rewriter &r, const Node &node) {
  return axis_of(r, node, -1) + 1 == r.shape(node.inputs.at(0)).size();
}

std::vector<std::int64_t> last_two_swapped(std::size_t rank) {
  std::vector<std::int64_t> perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[rank - 2], perm[rank - 1]);
  return perm;
}

}  // namespace protrain::passes
