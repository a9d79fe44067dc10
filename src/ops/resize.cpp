// Resize by interpolation: nearest, linear and cubic (Keys, 1981), each with or without a filter against aliasing.
#include "ops/resize.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

constexpr std::int64_t kMostWeights = std::int64_t{1} << 26;

// Returns the position among the old elements from which new element `at` is interpolated. Real is the type to compute
// in.
template <typename Real>
Real source(const std::string &mode, const ResizedAxis &axis, std::int64_t at, const std::string &subject) {
  const auto x = static_cast<Real>(at), from = static_cast<Real>(axis.from), scale = static_cast<Real>(axis.scale);
  const Real half = 0.5, length = scale * from;
  if (mode == "half_pixel") return (x + half) / scale - half;
  if (mode == "tf_half_pixel_for_nn") return (x + half) / scale;
  if (mode == "pytorch_half_pixel") return axis.to > 1 ? (x + half) / scale - half : 0;
  if (mode == "asymmetric") return x / scale;
  if (mode == "align_corners") return length > 1 ? x * (from - 1) / (length - 1) : 0;
  require(mode == "half_pixel_symmetric", Code::unsupported, subject, "Resize with coordinates {} is not supported",
          mode);
  const Real offset = from / 2 * (1 - static_cast<Real>(axis.to) / length);
  return offset + (x + half) / scale - half;
}

double nearest(const std::string &mode, const ResizedAxis &axis, double x) {
  if (mode == "opset10") return axis.scale < 1 ? std::ceil(x) : std::floor(x);
  if (mode == "floor") return std::floor(x);
  if (mode == "ceil") return std::ceil(x);
  return mode == "round_prefer_ceil" ? std::floor(x + 0.5) : std::ceil(x - 0.5);
}

double cubic(double distance, double a) {
  const double d = std::fabs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

std::vector<Type> infer_resize(const NodeTypes &types) {
  Type x = types.input(0);
  const auto constant = [&](std::size_t i) {
    return types.has(i) && !types.input(i).shape.empty() && element_count(types.input(i).shape) > 0 ? &types.constant(i)
                                                                                                    : nullptr;
  };
  const std::vector<ResizedAxis> axes = resized_axes(types.node, x.shape, constant(2), constant(3));
  for (std::size_t i = 0; i < axes.size(); ++i) x.shape[i] = axes[i].to;
  return {x};
}

}  // namespace

std::vector<ResizedAxis> resized_axes(const Node &node, const Shape &x, const Array *scales, const Array *sizes) {
  const std::string &subject = node.subject();
  require((scales == nullptr) != (sizes == nullptr), Code::graph, subject, "Resize takes either scales or sizes");
  std::vector<std::int64_t> named = node.attributes.integers("axes");
  if (!node.attributes.has("axes")) {
    named.resize(x.size());
    std::iota(named.begin(), named.end(), std::int64_t{0});
  }
  const std::vector<double> given = (scales != nullptr ? scales : sizes)->doubles();
  require(given.size() == named.size(), Code::shape, subject, "{} scales or sizes for {} axes", given.size(),
          named.size());
  std::vector<ResizedAxis> axes;
  for (std::int64_t dim : x) axes.push_back({.from = dim, .to = dim, .scale = 1});
  const std::string policy = node.attributes.text("keep_aspect_ratio_policy", "stretch");
  double joint = policy == "not_larger" ? HUGE_VAL : 0;  // the scale that all axes share
  for (std::size_t i = 0; i < named.size(); ++i) {
    ResizedAxis &axis = axes[resolve_axis(named[i], x.size(), subject)];
    require(axis.from > 0 && given[i] > 0 && given[i] < 1e9, Code::shape, subject,
            "axis {} of {} cannot be resized to {}", named[i], to_text(x), given[i]);
    axis.scale = scales != nullptr ? given[i] : given[i] / static_cast<double>(axis.from);
    axis.to = static_cast<std::int64_t>(scales != nullptr ? std::floor(static_cast<double>(axis.from) * axis.scale)
                                                          : given[i]);
    joint = policy == "not_larger" ? std::min(joint, axis.scale) : std::max(joint, axis.scale);
  }
  if (sizes == nullptr || policy == "stretch") return axes;
  for (std::int64_t at : named) {
    ResizedAxis &axis = axes[resolve_axis(at, x.size(), subject)];
    axis.scale = joint;
    axis.to = static_cast<std::int64_t>(std::floor(joint * static_cast<double>(axis.from) + 0.5));
  }
  return axes;
}

std::vector<std::int64_t> nearest_elements(const Node &node, const ResizedAxis &axis) {
  const std::string &subject = node.subject();
  const std::string coordinates = node.attributes.text("coordinate_transformation_mode", "half_pixel");
  const std::string mode = node.attributes.text("nearest_mode", "round_prefer_floor");
  require(axis.to <= kMostWeights, Code::limit, subject, "{} elements are too many", axis.to);
  std::vector<std::int64_t> elements;
  for (std::int64_t at = 0; at < axis.to; ++at) {
    // Computes x in float32, as frameworks do. Scales are float32, so x can lie exactly on the border between two
    // elements if it is computed in float32, but beside the border if it is computed in double.
    const double x = source<float>(coordinates, axis, at, subject);
    const double chosen = std::clamp(nearest(mode, axis, x), 0.0, static_cast<double>(axis.from - 1));
    elements.push_back(static_cast<std::int64_t>(chosen));
  }
  return elements;
}

std::vector<double> resize_weights(const Node &node, const ResizedAxis &axis) {
  const std::string &subject = node.subject();
  const std::string mode = node.attributes.text("mode", "nearest");
  const std::string coordinates = node.attributes.text("coordinate_transformation_mode", "half_pixel");
  const bool is_cubic = mode == "cubic", skips_outside = node.attributes.integer("exclude_outside", 0) != 0;
  require(is_cubic || mode == "linear", Code::unsupported, subject, "Resize with mode {} is not supported", mode);
  require(checked_multiply(static_cast<std::uint64_t>(axis.to), static_cast<std::uint64_t>(axis.from)) <= kMostWeights,
          Code::limit, subject, "{} by {} weights are too many", axis.to, axis.from);
  const bool filters = node.attributes.integer("antialias", 0) != 0;
  const double stretch = filters ? std::min(1.0, axis.scale) : 1, radius = (is_cubic ? 2 : 1) / stretch;
  const double a = node.attributes.real("cubic_coeff_a", -0.75);
  std::vector<double> weights(static_cast<std::size_t>(axis.to * axis.from), 0.0);
  for (std::int64_t at = 0; at < axis.to; ++at) {
    double *row = weights.data() + at * axis.from;
    const auto last = static_cast<double>(axis.from - 1);
    const double x = source<double>(coordinates, axis, at, subject);
    double total = 0;
    for (double i = std::floor(x - radius); i <= std::ceil(x + radius); ++i) {
      const double distance = (i - x) * stretch;
      const double weight = is_cubic ? cubic(distance, a) : std::max(0.0, 1 - std::fabs(distance));
      if (skips_outside && (i < 0 || i > last)) continue;
      row[static_cast<std::int64_t>(std::clamp(i, 0.0, last))] += weight;
      total += weight;
    }
    for (std::int64_t i = 0; i < axis.from; ++i) row[i] /= total;
  }
  return weights;
}

Family resize_family() { return {{.name = "Resize", .infer = infer_resize, .optional = {1, 2, 3}, .file_only = true}}; }

}  // namespace protrain::ops
