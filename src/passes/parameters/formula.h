// Tables that a program writes down are told from weights by their values.
#pragma once

#include <string>

#include "graph/array.h"

namespace protrain::passes {

// All elements are equal.
bool is_uniform(const graph::Array &array);

// A formula that the values follow, as words that go on from "holds "; empty where they follow none that is known.
// Random numbers follow none, nor does what was trained of them; `coarse` also takes whole numbers and halves in any
// order for a formula (grids, masks), which some weights start with.
std::string formula_of(const graph::Array &array, bool coarse);

}  // namespace protrain::passes
