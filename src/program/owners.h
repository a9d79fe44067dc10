// Assigns each value of a graph to an owner (weights, activations, ...).
#pragma once

#include <vector>

#include "program/program.h"

namespace protrain::program {

// Per value that is a storage root: the owner of the buffer that a node makes for it.
std::vector<Owner> owners(const LoweringInput &source, const std::vector<graph::ValueId> &roots);

}  // namespace protrain::program
