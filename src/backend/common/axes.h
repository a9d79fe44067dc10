// Views of a tensor for kernels that work along one axis or several axes.
#pragma once

#include <cstdint>
#include <vector>

#include "arith/math.h"
#include "backend/common/layout.h"
#include "backend/request.h"
#include "base/shape.h"

namespace protrain::backend {

// The lines along the node's axis. All axes before it are merged into one, and so are all axes after it, so that every
// shape becomes (outer, length, inner). There are outer * inner lines. Neighbouring elements of a line are `inner`
// apart.
struct AxisLines {
  AxisLines(const KernelRequest &request, const Shape &shape, std::int64_t default_axis) {
    const std::size_t axis =
        resolve_axis(request.node.attributes.integer("axis", default_axis), shape.size(), subject(request));
    const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
    outer = element_count({shape.begin(), at});
    length = *at;
    inner = element_count({at + 1, shape.end()});
    count = length == 0 ? 0 : outer * inner;
  }
  // Returns the position of a line's first element in an array (outer, of_length, inner).
  PROTRAIN_HD std::int64_t begin(std::int64_t line, std::int64_t of_length) const {
    return line / inner * of_length * inner + line % inner;
  }
  PROTRAIN_HD std::int64_t begin(std::int64_t line) const { return begin(line, length); }

  std::int64_t outer, length, inner;
  std::int64_t count;  // number of lines; 0 if a line has no elements
};

// The pairs of lines that GatherElements and its gradient walk: a line of the indices along the node's axis, and the
// line of the indexed tensor that these indices point into. Along all other axes the indices can be shorter than the
// tensor. Then some lines of the tensor belong to no pair.
struct IndexedLines {
  IndexedLines(const KernelRequest &request, const Shape &tensor) {
    const Shape &indices = request.inputs.at(1).shape;
    const std::size_t axis = resolve_axis(request.node.attributes.integer("axis", 0), tensor.size(), subject(request));
    Layout<2> all{indices, {row_major_strides(indices), row_major_strides(tensor)}};
    for (std::size_t i = 0; i < tensor.size(); ++i)
      require(i == axis || indices.at(i) <= tensor[i], Code::shape, subject(request),
              "indices {} reach over axis {} of {}", to_text(indices), i, to_text(tensor));
    length = indices.at(axis);
    extent = tensor[axis];
    index_stride = all.strides[0][axis];
    stride = all.strides[1][axis];
    all.dims[axis] = 1;
    count = length == 0 ? 0 : all.count();
    begins = merged(all, subject(request));
  }

  Layout<2> begins;     // a walk over the first elements of the lines: in the indices, and in the indexed tensor
  std::int64_t count;   // number of lines; 0 if a line has no indices
  std::int64_t length;  // indices in a line
  std::int64_t extent;  // length of the tensor along the axis
  std::int64_t index_stride, stride;  // from one element of a line to the next: in the indices, in the tensor
};

// The rows that are normalized. The node's axis and all later axes form one row.
struct NormalizedRows {
  NormalizedRows(const KernelRequest &request, const Shape &shape) {
    const std::size_t axis = resolve_axis(request.node.attributes.integer("axis", -1), shape.size(), subject(request));
    const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
    rows = element_count({shape.begin(), at});
    width = element_count({at, shape.end()});
  }

  std::int64_t rows, width;
};

// Returns for each axis of input 0 whether the node reduces it.
inline std::vector<bool> reduced_axes(const KernelRequest &request) {
  const std::size_t rank = request.inputs.at(0).shape.size();
  const std::vector<std::int64_t> axes = request.node.attributes.integers("axes");
  const bool all = axes.empty() && request.node.attributes.integer("noop_with_empty_axes", 0) == 0;
  std::vector<bool> reduced(rank, all);
  for (std::int64_t axis : axes) reduced[resolve_axis(axis, rank, subject(request))] = true;
  return reduced;
}

}  // namespace protrain::backend
