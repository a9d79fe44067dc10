// Assigns each value of a graph to an owner (weights, activations, ...).
#pragma once

#include <vector>

#include "program/program.h"

namespace protrain::program {

// Returns the owner of each storage root's buffer. The result is only valid for roots that nodes make.
std::vector<Owner> owners(const LoweringInput &source, const std::vector<graph::ValueId> &roots);

}  // namespace protrain::program
