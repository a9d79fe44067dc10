// Expresses Transpose, Slice, SliceGrad, Concat, Split, Expand and Pad as lists of strided copies. The copies serve any
// element type.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/common/layout.h"

namespace protrain::backend {

// One strided copy from an input to an output. Offsets and strides are in elements.
struct Move {
  std::size_t from = 0, to = 0;  // indices of the input and of the output
  Layout<2> layout = {};         // merged; strides of the input, then of the output
  std::int64_t from_offset = 0, to_offset = 0;
};

using Element = std::array<std::byte, sizeof(std::uint64_t)>;  // the first bytes hold an element of any type

struct Moves {
  std::vector<Move> list;
  std::optional<Element> fill = {};  // if set, output 0 is filled with this value before anything is copied
};

Moves moves_of(const KernelRequest &request);

}  // namespace protrain::backend
