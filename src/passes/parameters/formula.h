// Tells tables that a program computed from trained weights, by their values.
#pragma once

#include <string>

#include "graph/array.h"

namespace protrain::passes {

// True if all elements are equal.
bool is_uniform(const graph::Array &array);

// Names a formula that the values follow, in words that continue "holds "; empty if there is none. Random numbers
// follow none, and neither do numbers trained from them. `coarse` also accepts whole numbers and halves in any order
// (grids, masks), which some weights start with.
std::string formula_of(const graph::Array &array, bool coarse);

}  // namespace protrain::passes
