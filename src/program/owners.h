// Assigns each value of a graph to an owner (weights, activations, ...).
#pragma once

#include <vector>

#include "program/program.h"

namespace protrain::program {

// Returns for each storage root that a node makes the owner of its buffer.
std::vector<Owner> owners(const LoweringInput &source, const std::vector<graph::ValueId> &roots);

}  // namespace protrain::program
