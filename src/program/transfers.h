// Transfers: the moves to and from the device beside the items of a sequence: weights, updates that the last step left,
// swapped activations.
#pragma once

#include <limits>
#include <vector>

#include "program/sequence.h"
#include "program/updates.h"

namespace protrain::program {

inline constexpr std::size_t kNoParameter = std::numeric_limits<std::size_t>::max();

// Per item of the sequence: the moves to emit before it and after it.
struct Transfers {
  std::vector<std::vector<std::size_t>> fetches;                 // before: chunks whose weights come to the device
  std::vector<std::vector<std::size_t>> settles;                 // before: chunks that the item is the first to use
  std::size_t settled_by = 0;                                    // the item by which all of them are settled
  std::vector<std::vector<graph::ValueId>> swaps_in, swaps_out;  // before, after: storage roots
};

// The inputs that a plan of transfers follows from.
struct TransferInputs {
  const graph::Graph &graph;
  const plan::Plan &plan;
  const State &state;
  const std::vector<graph::ValueId> &roots;   // of each value
  const std::vector<std::size_t> &parameter;  // of each root
  const Sequence &sequence;
  const Updates &updates;
};
Transfers transfers(const TransferInputs &inputs);

}  // namespace protrain::program
