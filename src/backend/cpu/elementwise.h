// Walks over tensors of the same dims and different strides: what broadcasting, slicing and transposing have in common.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "backend/cpu/clones.h"
#include "backend/cpu/kernel.h"
#include "base/shape.h"

namespace protrain::backend {

using Strides = std::vector<std::int64_t>;           // in elements
inline constexpr std::size_t kMostDims = 16;         // that are left when neighbours are merged
inline constexpr std::int64_t kElementGrain = 1024;  // least elements worth a member's while; a multiple of cache lines

// N operands walked together, outermost dim first.
template <std::size_t N>
struct Layout {
  Shape dims;
  std::array<Strides, N> strides;

  std::int64_t count() const { return element_count(dims); }
  std::int64_t inner_stride(std::size_t operand) const { return strides[operand].back(); }
};

// The same walk in as few dims as possible, at least one: dims of 1 go, neighbours that every operand lays end to end
// become one.
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
  require(out.dims.size() <= kMostDims, Code::unsupported, subject, "{} dims that cannot be merged, the cpu walks {}",
          out.dims.size(), kMostDims);
  return out;
}

// Strides of an operand of `shape` in a walk over `target`, which it broadcasts to: 0 where it is stretched.
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

// Calls body(first, offsets, count) for the runs along the innermost dim that make up elements [range.begin, range.end)
// of the walk: `first` is the run's first element in walk order, offsets where each operand has it.
template <std::size_t N, typename Body>
void for_each_run(const Layout<N> &layout, Range range, Body &&body) {
  if (range.begin >= range.end) return;
  const std::size_t outer = layout.dims.size() - 1;
  const std::int64_t inner = layout.dims[outer];
  std::array<std::int64_t, kMostDims> position{};
  std::array<std::int64_t, N> row{};
  std::int64_t rest = range.begin / inner;
  for (std::size_t axis = outer; axis-- > 0; rest /= layout.dims[axis]) {
    position[axis] = rest % layout.dims[axis];
    for (std::size_t n = 0; n < N; ++n) row[n] += position[axis] * layout.strides[n][axis];
  }
  std::int64_t column = range.begin % inner;
  for (std::int64_t at = range.begin; at < range.end; column = 0) {
    std::array<std::int64_t, N> offsets = row;
    for (std::size_t n = 0; n < N; ++n) offsets[n] += column * layout.strides[n][outer];
    const std::int64_t count = std::min(inner - column, range.end - at);
    body(at, offsets, count);
    at += count;
    for (std::size_t axis = outer; axis-- > 0;) {
      const bool carries = ++position[axis] == layout.dims[axis];
      for (std::size_t n = 0; n < N; ++n) row[n] += layout.strides[n][axis] * (carries ? 1 - layout.dims[axis] : 1);
      if (!carries) break;
      position[axis] = 0;
    }
  }
}

// KernelOf<T>(request, arguments...) with an unsigned T as wide as the elements of `dtype`: for what only moves them.
template <template <typename> class KernelOf, typename... Arguments>
std::unique_ptr<CpuKernel> make_by_size(const KernelRequest &request, DType dtype, Arguments &&...arguments) {
  switch (size_of(dtype)) {
    case 1:
      return std::make_unique<KernelOf<std::uint8_t>>(request, std::forward<Arguments>(arguments)...);
    case 2:
      return std::make_unique<KernelOf<std::uint16_t>>(request, std::forward<Arguments>(arguments)...);
    case 4:
      return std::make_unique<KernelOf<std::uint32_t>>(request, std::forward<Arguments>(arguments)...);
    case 8:
      return std::make_unique<KernelOf<std::uint64_t>>(request, std::forward<Arguments>(arguments)...);
    default:
      fail(Code::unsupported, subject(request), "elements of type {} cannot be moved", name_of(dtype));
  }
}

}  // namespace protrain::backend
