// Operands of the same dims and different strides, walked together. Broadcasting, slicing, transposing and batches of
// products are all such walks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/shape.h"

namespace protrain::backend {

using Strides = std::vector<std::int64_t>;    // in elements
inline constexpr std::size_t kMostDims = 16;  // at most this many may be left when neighbours are merged

// N operands walked together, outermost dim first.
template <std::size_t N>
struct Layout {
  Shape dims;
  std::array<Strides, N> strides;

  std::int64_t count() const { return element_count(dims); }
  std::int64_t inner_stride(std::size_t operand) const { return strides[operand].back(); }
};

// Gives the same walk in as few dims as possible, at least one. Dims of 1 go. Neighbouring dims become one where every
// operand lays them end to end.
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

// Says how many neighbours of the innermost dim can be taken at once, at most `most` (a power of two). Every operand
// has these neighbours end to end, or one element for them all. Packs of them begin at multiples of their size
// everywhere.
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

// Gives the walk from pack to pack of so many neighbours. Strides are still counted in elements.
template <std::size_t N>
Layout<N> in_packs(Layout<N> layout, std::int64_t count) {
  layout.dims.back() /= count;
  for (Strides &strides : layout.strides) strides.back() *= count;
  return layout;
}

// Gives every position of the walk: where each operand has its element.
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

// Gives the strides of an operand of `shape` in a walk over `target`, which it broadcasts to: 0 where it is stretched.
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
