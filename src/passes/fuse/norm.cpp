// Fuses LayerNormalization and RMSNormalization that are written as several operators:
//   d = x - mean(x);  y = d * scale / sqrt(mean(d^2) + epsilon) + bias      (RMS: d = x, no bias)
#include <algorithm>

#include "passes/fuse/fuse.h"

namespace protrain::passes {

namespace {

// Returns the first of the axes that the mean is taken over. Returns an empty optional if these are not the last axes
// of the input, or if keepdims is not set.
std::optional<std::size_t> trailing_axis(const Rewriter &r, const Node &mean) {
  const std::vector<std::int64_t> axes = mean.attributes.integers("axes");
  const std::size_t rank = r.shape(mean.inputs.at(0)).size();
  if (axes.empty() || axes.size() > rank || mean.attributes.integer("keepdims", 1) != 1) return std::nullopt;
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != static_cast<std::int64_t>(rank - axes.size() + i)) return std::nullopt;
  return rank - axes.size();
}

// A variance that the graph computes as mean(d^2) + epsilon. The mean is over the axes from `axis` to the last one.
struct Variance {
  ValueId value = ValueId::none;  // d
  int reads = 0;                  // how often the square reads d
  double epsilon = 0;
  std::size_t axis = 0;
};

std::optional<Variance> variance(const Rewriter &r, ValueId id) {
  const auto sum = plus_constant(r, id);
  if (!sum) return std::nullopt;
  const Node *mean = made_for_one(r, sum->value, "ReduceMean");
  if (mean == nullptr) return std::nullopt;
  const auto axis = trailing_axis(r, *mean);
  const Node *square = r.uses(mean->inputs[0]) == 1 ? r.producer(mean->inputs[0]) : nullptr;
  if (!axis || square == nullptr) return std::nullopt;
  const bool by_power = square->op == "Pow" && uniform(r, square->inputs[1]) == 2.0;
  const bool by_product = square->op == "Mul" && square->inputs[0] == square->inputs[1];
  if (!by_power && !by_product) return std::nullopt;
  return Variance{square->inputs[0], by_power ? 1 : 2, sum->constant, *axis};
}

// Returns the variance if the factor is 1 / sqrt(variance), and an empty optional otherwise.
std::optional<Variance> inverse_deviation(const Rewriter &r, const Factor &factor) {
  if (const Node *root = made_for_one(r, factor.value, "Sqrt"); root != nullptr && factor.inverse)
    return variance(r, root->inputs[0]);
  const Node *power = made_for_one(r, factor.value, "Pow");
  if (power == nullptr || uniform(r, power->inputs[1]) != (factor.inverse ? 0.5 : -0.5)) return std::nullopt;
  return variance(r, power->inputs[0]);
}

// Returns x if `id` is x - mean(x), the mean is over the same axes as the variance, and only the normalization reads
// `id`. Otherwise returns ValueId::none.
ValueId centered(const Rewriter &r, ValueId id, const Variance &variance) {
  const Node *difference = made_by(r, id, "Sub");
  if (difference == nullptr || r.uses(id) != variance.reads + 1) return ValueId::none;
  const Node *mean = made_for_one(r, difference->inputs[1], "ReduceMean");
  const bool matches =
      mean != nullptr && mean->inputs[0] == difference->inputs[0] && trailing_axis(r, *mean) == variance.axis;
  return matches ? difference->inputs[0] : ValueId::none;
}

// Returns `id` in the given shape: `id` itself, or a Reshape that drops leading axes of length 1. Returns ValueId::none
// if the shapes differ in another way.
ValueId as_shape(Rewriter &r, ValueId id, const Shape &shape) {
  const Shape found = r.shape(id);
  if (found == shape) return id;
  const bool longer = found.size() > shape.size();
  if (!longer || element_count(found) != element_count(shape)) return ValueId::none;
  if (!std::equal(shape.rbegin(), shape.rend(), found.rbegin())) return ValueId::none;
  return r.emit("Reshape", {id}, {{"shape", shape}});
}

}  // namespace

bool fuse_normalization(Fusion &fusion, const Node &mul) {
  Rewriter &r = fusion.r;
  const Product product = product_of(r, mul);
  if (product.constant != 1 || product.factors.size() != 3) return false;
  // The three factors in some order: data, scale, 1 / deviation.
  constexpr std::size_t kOrders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto &order : kOrders) {
    const Factor data = product.factors[order[0]], scale = product.factors[order[1]];
    const auto found = inverse_deviation(r, product.factors[order[2]]);
    if (!found || data.value != found->value || data.inverse || scale.inverse) continue;
    const Shape shape = r.shape(data.value);
    const Shape normalized(shape.begin() + static_cast<std::ptrdiff_t>(found->axis), shape.end());
    if (r.shape(mul.outputs[0]) != shape) return false;
    const ValueId vector = as_shape(r, scale.value, normalized);
    if (vector == ValueId::none) return false;
    const ValueId x = centered(r, data.value, *found);
    const bool layer = x != ValueId::none;
    Node node = mul;
    node.outputs.push_back(r.new_value());
    if (layer) node.outputs.push_back(r.new_value());
    r.become(node, layer ? "LayerNormalization" : "RMSNormalization", {layer ? x : data.value, vector},
             {{"axis", static_cast<std::int64_t>(found->axis)}, {"epsilon", found->epsilon}});
    return true;
  }
  return false;
}

bool fuse_normalization_bias(Fusion &fusion, const Node &add) {
  Rewriter &r = fusion.r;
  for (std::size_t i = 0; i < 2; ++i) {
    const Node *norm = made_for_one(r, add.inputs[i], "LayerNormalization");
    if (norm == nullptr || norm->inputs.size() != 2) continue;
    if (std::any_of(norm->outputs.begin() + 1, norm->outputs.end(), [&](ValueId out) { return r.uses(out) > 0; }))
      continue;
    const ValueId x = norm->inputs[0], scale = norm->inputs[1];
    const Attributes attributes = norm->attributes;
    if (r.shape(add.outputs[0]) != r.shape(x)) continue;
    const ValueId bias = as_shape(r, add.inputs[1 - i], r.shape(scale));
    if (bias == ValueId::none) continue;
    Node node = add;
    node.outputs.insert(node.outputs.end(), {r.new_value(), r.new_value()});
    r.become(node, "LayerNormalization", {x, scale, bias}, attributes);
    return true;
  }
  return false;
}

}  // namespace protrain::passes
