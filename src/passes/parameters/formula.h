// Distinguishes, by values, tables that a program computed and weights that were trained.
#pragma once

#include <string>

#include "graph/array.h"

namespace protrain::passes {

// True if all elements are equal.
bool is_uniform(const graph::Array &array);

// Names a formula that the values follow, in words that continue "holds "; empty if there is none. Random numbers
// follow no formula, and neither do weights that were random before training. `coarse` also accepts whole numbers and
// halves in any order (grids, masks). Pass false if the values are in a place where weights can start as such numbers.
std::string formula_of(const graph::Array &array, bool coarse);

}  // namespace protrain::passes
