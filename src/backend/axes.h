// How kernels see a tensor around the axes that their operator works along.
#pragma once

#include <cstdint>
#include <vector>

#include "arith/math.h"
#include "backend/request.h"
#include "base/shape.h"

namespace protrain::backend {

// Of any shape as (outer, length, inner) around the node's axis: outer * inner lanes, whose elements are `inner` apart.
struct Lanes {
  Lanes(const KernelRequest &request, const Shape &shape, std::int64_t default_axis) {
    const std::size_t axis =
        resolve_axis(request.node.attributes.integer("axis", default_axis), shape.size(), subject(request));
    const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
    outer = element_count({shape.begin(), at});
    length = *at;
    inner = element_count({at + 1, shape.end()});
    count = length == 0 ? 0 : outer * inner;
  }
  // Where a lane of an array begins that is `of_length` long along the axis.
  PROTRAIN_HD std::int64_t begin(std::int64_t lane, std::int64_t of_length) const {
    return lane / inner * of_length * inner + lane % inner;
  }
  PROTRAIN_HD std::int64_t begin(std::int64_t lane) const { return begin(lane, length); }

  std::int64_t outer, length, inner;
  std::int64_t count;  // of lanes; none of no elements
};

// What is normalized: all axes from the node's on are one row.
struct NormalizedRows {
  NormalizedRows(const KernelRequest &request, const Shape &shape) {
    const std::size_t axis = resolve_axis(request.node.attributes.integer("axis", -1), shape.size(), subject(request));
    const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
    rows = element_count({shape.begin(), at});
    width = element_count({at, shape.end()});
  }

  std::int64_t rows, width;
};

// The axes that a reduction joins, as flags.
inline std::vector<bool> reduced_axes(const KernelRequest &request) {
  const std::size_t rank = request.inputs.at(0).shape.size();
  const std::vector<std::int64_t> axes = request.node.attributes.integers("axes");
  const bool all = axes.empty() && request.node.attributes.integer("noop_with_empty_axes", 0) == 0;
  std::vector<bool> reduced(rank, all);
  for (std::int64_t axis : axes) reduced[resolve_axis(axis, rank, subject(request))] = true;
  return reduced;
}

}  // namespace protrain::backend
