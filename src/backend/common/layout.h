// Walks: the order in which a kernel visits the elements of several operands together. The operands have the same dims,
// and each has strides of its own. Broadcasting, slicing, transposing and batches of products are all such walks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/shape.h"

namespace protrain::backend {

using Strides = std::vector<std::int64_t>;    // in elements
inline constexpr std::size_t kMostDims = 16;  // the most dims that a walk may have after merging

// A walk over N operands, outermost dim first.
template <std::size_t N>
struct Layout {
  Shape dims;
  std::array<Strides, N> strides;

  std::int64_t count() const { return element_count(dims); }
  std::int64_t inner_stride(std::size_t operand) const { return strides[operand].back(); }
};

// Returns the same walk with as few dims as possible, but at least one. Dims of size 1 are dropped. Two neighbouring
// dims become one if every operand can walk both with a single stride.
template <std::size_t N>
Layout<N> merged(const Layout<N> &layout, const std::string &subject) {
  Layout<N> out;
  for (std::size_t axis = 0; axis < layout.dims.size(); ++axis) {
    if (layout.dims[axis] == 1) continue;
    bool joins = !out.dims.empty();
    for (std::size_t n = 0; n < N && joins; ++n)
      joins = out.strides[n].back() == layout.strides[n][axis] * layout.dims[axis];
    if (joins)
      out.dims.back() *= layout.dims[axis];
    else
      out.dims.push_back(layout.dims[axis]);
    for (std::size_t n = 0; n < N; ++n) {
      if (joins) out.strides[n].pop_back();
      out.strides[n].push_back(layout.strides[n][axis]);
    }
  }
  if (out.dims.empty()) {
    out.dims = {1};
    out.strides.fill({1});
  }
  require(out.dims.size() <= kMostDims, Code::unsupported, subject, "{} dims that cannot be merged, kernels walk {}",
          out.dims.size(), kMostDims);
  return out;
}

// A pack is a run of neighbours along the innermost dim that one instruction can load from each operand. Returns the
// number of elements of the largest possible pack, at most `most`. This number and `most` are powers of two. The number
// must divide the innermost dim. In each operand a pack must be contiguous and begin at a multiple of the number, or it
// must be a single element that repeats.
template <std::size_t N>
std::int64_t neighbours(const Layout<N> &layout, std::int64_t most) {
  auto fits = [&](std::int64_t count) {
    if (layout.dims.back() % count != 0) return false;
    for (const Strides &strides : layout.strides) {
      if (strides.back() != 0 && strides.back() != 1) return false;
      for (std::size_t axis = 0; axis + 1 < strides.size() && strides.back() == 1; ++axis)
        if (strides[axis] % count != 0) return false;
    }
    return true;
  };
  while (most > 1 && !fits(most)) most /= 2;
  return most;
}

// Returns the walk that goes from pack to pack. A pack is `count` neighbours along the innermost dim. Strides still
// count elements.
template <std::size_t N>
Layout<N> in_packs(Layout<N> layout, std::int64_t count) {
  layout.dims.back() /= count;
  for (Strides &strides : layout.strides) strides.back() *= count;
  return layout;
}

// Returns, for every position of the walk, the offset of each operand's element.
template <std::size_t N>
std::vector<std::array<std::int64_t, N>> positions(const Layout<N> &layout) {
  std::vector<std::array<std::int64_t, N>> all(static_cast<std::size_t>(layout.count()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    auto rest = static_cast<std::int64_t>(i);
    for (std::size_t axis = layout.dims.size(); axis-- > 0; rest /= layout.dims[axis])
      for (std::size_t n = 0; n < N; ++n) all[i][n] += rest % layout.dims[axis] * layout.strides[n][axis];
  }
  return all;
}

// Returns the strides of an operand of `shape` in a walk over `target`, to which the operand broadcasts. The stride is
// 0 where the operand is stretched.
inline Strides broadcast_strides(const Shape &shape, const Shape &target, const std::string &subject) {
  require(shape.size() <= target.size(), Code::shape, subject, "{} does not broadcast to {}", to_text(shape),
          to_text(target));
  const Strides own = row_major_strides(shape);
  Strides out(target.size(), 0);
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::size_t axis = target.size() - shape.size() + i;
    require(shape[i] == 1 || shape[i] == target[axis], Code::shape, subject, "{} does not broadcast to {}",
            to_text(shape), to_text(target));
    if (shape[i] != 1) out[axis] = own[i];
  }
  return out;
}

}  // namespace protrain::backend
