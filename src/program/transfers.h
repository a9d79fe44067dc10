// Transfers: the moments of a step at which weights and swapped activations move to or from the device, and at which
// chunks are settled. A moment is given as an item of the sequence. To settle a chunk is to run the deferred updates
// that the previous step left.
#pragma once

#include <limits>
#include <vector>

#include "program/sequence.h"
#include "program/updates.h"

namespace protrain::program {

inline constexpr std::size_t kNoParameter = std::numeric_limits<std::size_t>::max();

// Per item of the sequence: the moves to emit just before the item, and the moves to emit just after it.
struct Transfers {
  std::vector<std::vector<std::size_t>> fetches;                 // before: chunks whose weights come to the device
  std::vector<std::vector<std::size_t>> settles;                 // before: chunks to settle, since the item uses them
  std::size_t settled_by = 0;                                    // the first item by which all chunks are settled
  std::vector<std::vector<graph::ValueId>> swaps_in, swaps_out;  // before, after: storage roots
};

// The arguments of transfers().
struct TransferInputs {
  const graph::Graph &graph;
  const plan::Plan &plan;
  const State &state;
  const std::vector<graph::ValueId> &roots;   // per value
  const std::vector<std::size_t> &parameter;  // per root: the parameter that it is, or kNoParameter
  const Sequence &sequence;
  const Updates &updates;
};
Transfers transfers(const TransferInputs &inputs);

}  // namespace protrain::program
