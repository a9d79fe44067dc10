// Loops over the elements of several operands together, in the order of a walk (common/layout.h). A loop handles one
// run at a time: elements that follow each other along the innermost dim.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "backend/common/clones.h"
#include "backend/common/layout.h"
#include "backend/cpu/kernel.h"

namespace protrain::backend::cpu {

inline constexpr std::int64_t kElementGrain = 1024;  // members' shares are cut at multiples of this; whole cache lines

inline std::int64_t element_bytes(const graph::Type &type) { return static_cast<std::int64_t>(size_of(type.dtype)); }

// Cuts elements [range.begin, range.end) of the walk into runs along the innermost dim, and calls body(first, offsets,
// count) for each run. `first` is the number of the run's first element in the order of the walk. `offsets` holds this
// element's offset in each operand.
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

// Makes KernelOf<T>(request, arguments...), where T is an unsigned integer as wide as an element of `dtype`. Kernels
// that only move elements need only their size.
template <template <typename> class KernelOf, typename... Arguments>
KernelPtr make_by_size(const KernelRequest &request, DType dtype, Arguments &&...arguments) {
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

}  // namespace protrain::backend::cpu
