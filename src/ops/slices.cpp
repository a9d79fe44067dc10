// Slice's bounds: negative ones count from the end, those out of range are clamped.
#include "ops/slices.h"

#include <algorithm>

#include "base/error.h"

namespace protrain::ops {

std::vector<AxisSlice> resolve_slices(const Node &node, const Shape &shape) {
  const auto starts = node.attributes.integers("starts"), ends = node.attributes.integers("ends");
  const auto axes = node.attributes.integers("axes"), steps = node.attributes.integers("steps");
  require(starts.size() == ends.size() && (axes.empty() || axes.size() == starts.size()) &&
              (steps.empty() || steps.size() == starts.size()) && starts.size() <= shape.size(),
          Code::shape, node.name, "starts {}, ends {}, axes {}, steps {} do not slice {}", to_text(starts),
          to_text(ends), to_text(axes), to_text(steps), to_text(shape));
  std::vector<AxisSlice> slices;
  for (std::int64_t dim : shape) slices.push_back({.start = 0, .step = 1, .count = dim});
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const std::size_t axis = axes.empty() ? i : resolve_axis(axes[i], shape.size(), node.name);
    const std::int64_t dim = shape[axis], step = steps.empty() ? 1 : steps[i];
    require(step != 0 && step != INT64_MIN, Code::shape, node.name, "a step of {} slices nothing", step);
    // With a negative step, a start before the first element is moved to the first element. An end before the first
    // element becomes -1, so that the slice can include the first element.
    const std::int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? dim : dim - 1;
    const auto bound = [&](std::int64_t at, std::int64_t least) {
      return std::clamp(at < 0 ? at + dim : at, least, highest);
    };
    const std::int64_t start = bound(starts[i], dim > 0 ? 0 : lowest), end = bound(ends[i], lowest);
    const std::int64_t span = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
    slices[axis] = {.start = start, .step = step, .count = span > 0 ? (span - 1) / stride + 1 : 0};
  }
  return slices;
}

}  // namespace protrain::ops
