// LayerNormalization and RMSNormalization. A row consists of the contiguous elements of the last axes of x.
// LayerNormalization gives each row mean 0 and variance 1, RMSNormalization gives it mean square 1.
#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

bool centres(std::string_view op) { return op.starts_with("Layer"); }
bool centres(const Node &node) { return centres(node.op); }

// Views x as a matrix (count, width): the axes before `axis` are joined into rows, and `axis` and those after it into
// the elements of a row.
struct NormalRows {
  NormalRows(const Node &node, const Shape &shape)
      : axis(resolve_axis(node.attributes.integer("axis", -1), shape.size(), node.name)),
        normalized(shape.begin() + static_cast<std::ptrdiff_t>(axis), shape.end()),
        statistics(shape) {
    for (std::size_t i = axis; i < shape.size(); ++i) statistics[i] = 1;
    count = static_cast<std::size_t>(element_count(statistics));
    width = static_cast<std::size_t>(element_count(normalized));
  }
  std::size_t axis;
  Shape normalized;  // of scale and bias
  Shape statistics;  // of mean and inv_std
  std::size_t count, width;
};

// LayerNormalization: x, scale[, bias] -> y, mean, inv_std. RMSNormalization: x, scale -> y, inv_rms.
std::vector<Type> infer_normalization(const NodeTypes &types) {
  const Type &x = types.input(0);
  require(is_float(x.dtype), Code::type, types.subject(), "{} does not take {}", types.node.op, name_of(x.dtype));
  const NormalRows rows(types.node, x.shape);
  for (std::size_t i = 1; i < std::max<std::size_t>(types.inputs.size(), 2); ++i)
    if (i == 1 || types.has(i))
      require(types.input(i).dtype == x.dtype && types.input(i).shape == rows.normalized, Code::shape, types.subject(),
              "operand {} is {}, expected {} of shape {}", i, to_text(types.input(i)), name_of(x.dtype),
              to_text(rows.normalized));
  const Type statistics{sum_dtype(x.dtype), rows.statistics};
  return centres(types.node) ? std::vector<Type>{x, statistics, statistics} : std::vector<Type>{x, statistics};
}

std::vector<Array> evaluate_normalization(const Node &node, std::span<const Array *const> in,
                                          std::span<const Type> out) {
  const NormalRows rows(node, in[0]->shape());
  const double epsilon = node.attributes.real("epsilon", 1e-5);
  const std::vector<double> x = in[0]->doubles(), scale = in[1]->doubles();
  const std::vector<double> bias =
      optional_input(in, 2) != nullptr ? in[2]->doubles() : std::vector<double>(rows.width, 0.0);
  std::vector<double> y(x.size()), means(rows.count, 0.0), inverses(rows.count);
  for (std::size_t r = 0; r < rows.count; ++r) {
    const double *row = x.data() + r * rows.width;
    if (centres(node)) {
      for (std::size_t i = 0; i < rows.width; ++i) means[r] += row[i];
      means[r] /= static_cast<double>(rows.width);
    }
    double squares = 0;
    for (std::size_t i = 0; i < rows.width; ++i) squares += (row[i] - means[r]) * (row[i] - means[r]);
    inverses[r] = 1 / std::sqrt(squares / static_cast<double>(rows.width) + epsilon);
    for (std::size_t i = 0; i < rows.width; ++i)
      y[r * rows.width + i] = (row[i] - means[r]) * inverses[r] * scale[i] + bias[i];
  }
  std::vector<Array> results = {array_of(out[0], y)};
  if (centres(node)) results.push_back(array_of(out[1], means));
  results.push_back(array_of(out.back(), inverses));
  return results;
}

// Returns the index of the gradient node's input `rest`, an earlier gradient of x that is added to dx.
std::size_t rest_input(std::string_view op) { return centres(op) ? 5 : 4; }

// LayerNormalizationGrad(dy, x, scale, mean, inv_std[, rest]) -> dx, dscale, dbias
// RMSNormalizationGrad(dy, x, scale, inv_rms[, rest]) -> dx, dscale
std::vector<Type> infer_normalization_gradient(const NodeTypes &types) {
  const Type &x = types.input(1);
  const NormalRows rows(types.node, x.shape);
  require(types.input(0) == x && types.input(2).shape == rows.normalized, Code::shape, types.subject(),
          "gradient {} and scale {} do not fit {}", to_text(types.input(0)), to_text(types.input(2)), to_text(x));
  const std::size_t rest = rest_input(types.node.op);
  require(!types.has(rest) || types.input(rest) == x, Code::shape, types.subject(),
          "the added gradient {} does not fit {}", types.has(rest) ? to_text(types.input(rest)) : "", to_text(x));
  return centres(types.node) ? std::vector<Type>{x, types.input(2), types.input(2)}
                             : std::vector<Type>{x, types.input(2)};
}

// Computes dx = inv (g - mean(g) - n mean(g n)), with n = (x - mean) inv and g = dy scale. `inv` is inv_std or inv_rms.
// For RMSNormalization, n is x inv, and the term mean(g) is left out. Rounds dx before adding `rest`, if that is given.
std::vector<Array> evaluate_normalization_gradient(const Node &node, std::span<const Array *const> in,
                                                   std::span<const Type> out) {
  const NormalRows rows(node, in[1]->shape());
  const std::vector<double> dy = in[0]->doubles(), x = in[1]->doubles(), scale = in[2]->doubles();
  const std::vector<double> means = centres(node) ? in[3]->doubles() : std::vector<double>(rows.count, 0.0);
  const std::size_t at = rest_input(node.op);
  const std::vector<double> inverses = in[at - 1]->doubles();
  std::vector<double> dx(x.size()), dscale(rows.width, 0.0), dbias(rows.width, 0.0);
  const auto width = static_cast<double>(rows.width);
  for (std::size_t r = 0; r < rows.count; ++r) {
    double mean_g = 0, mean_gn = 0;
    const auto normal = [&](std::size_t i) { return (x[r * rows.width + i] - means[r]) * inverses[r]; };
    for (std::size_t i = 0; i < rows.width; ++i) {
      const double d = dy[r * rows.width + i], g = d * scale[i];
      dbias[i] += d;
      dscale[i] += d * normal(i);
      mean_gn += g * normal(i) / width;
      if (centres(node)) mean_g += g / width;
    }
    for (std::size_t i = 0; i < rows.width; ++i)
      dx[r * rows.width + i] = inverses[r] * (dy[r * rows.width + i] * scale[i] - mean_g - normal(i) * mean_gn);
  }
  if (const Array *rest = optional_input(in, at); rest != nullptr) {
    dx = array_of(out[0], dx).doubles();
    std::ranges::transform(dx, rest->doubles(), dx.begin(), std::plus());
  }
  std::vector<Array> results = {array_of(out[0], dx), array_of(out[1], dscale)};
  if (centres(node)) results.push_back(array_of(out[2], dbias));
  return results;
}

void differentiate_normalization(GradientBuilder &builder, const Node &node) {
  const bool has_bias = node.inputs.size() > 2 && node.inputs[2] != ValueId::none;
  if (!builder.wants(node.inputs[0]) && !builder.wants(node.inputs[1]) && !(has_bias && builder.wants(node.inputs[2])))
    return;
  for (std::size_t i = 1; i < node.outputs.size(); ++i)
    require(builder.gradient_of(node.outputs[i]) == ValueId::none, Code::unsupported, node.name,
            "a loss that depends on the statistics of {} cannot be differentiated", node.op);
  std::vector<ValueId> inputs = {builder.gradient_of(node.outputs[0]), node.inputs[0], node.inputs[1]};
  inputs.insert(inputs.end(), node.outputs.begin() + 1, node.outputs.end());
  const Attributes attributes = {{"axis", node.attributes.integer("axis", -1)}};
  const std::vector<ValueId> made = builder.emit(node.op + "Grad", inputs, attributes, centres(node) ? 3 : 2);
  builder.contribute(node.inputs[0], made[0]);
  builder.contribute(node.inputs[1], made[1]);
  if (has_bias) builder.contribute(node.inputs[2], made[2]);
}

double normalization_flops(const NodeTypes &types, std::span<const Type>) {
  return 8.0 * static_cast<double>(element_count(types.input(0).shape));
}

}  // namespace

Family normalization_family() {
  Family family;
  for (const char *name : {"LayerNormalization", "RMSNormalization"})
    family.push_back({.name = name,
                      .infer = infer_normalization,
                      .evaluate = evaluate_normalization,
                      .gradient = differentiate_normalization,
                      .flops = normalization_flops,
                      .optional = centres(name) ? std::vector<std::size_t>{2} : std::vector<std::size_t>()});
  for (const char *name : {"LayerNormalizationGrad", "RMSNormalizationGrad"})
    family.push_back({.name = name,
                      .infer = infer_normalization_gradient,
                      .evaluate = evaluate_normalization_gradient,
                      .flops = normalization_flops,
                      .optional = {rest_input(name)}});
  for (const char *name :
       {"GroupNormalization", "InstanceNormalization", "MeanVarianceNormalization", "LpNormalization", "LRN"})
    family.push_back({.name = name, .infer = same_as_input, .file_only = true});
  return family;
}

}  // namespace protrain::ops
