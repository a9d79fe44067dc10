// What Transpose, Slice, SliceGrad, Concat, Split, Expand and Pad are, whatever the type: lists of strided copies.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "backend/layout.h"

namespace protrain::backend {

// One strided copy between an input and an output; offsets and strides in elements.
struct Move {
  std::size_t from = 0, to = 0;  // which input, which output
  Layout<2> layout = {};         // merged; strides of the input, strides of the output
  std::int64_t from_offset = 0, to_offset = 0;
};

using Element = std::array<std::byte, sizeof(std::uint64_t)>;  // one of any type, at the front

struct Moves {
  std::vector<Move> list;
  std::optional<Element> fill = {};  // of all of output 0, before anything is copied to it
};

Moves moves_of(const KernelRequest &request);

}  // namespace protrain::backend
