// Distinguishes, by values, tables that a program computed and weights that were trained.
#pragma once

#include <string>

#include "graph/array.h"

namespace protrain::passes {

// True if all elements are equal.
bool is_uniform(const graph::Array &array);

// True for identity matrices, one or several below one another, and for convolution kernels that pass each channel on
// as it is. Layers are made to start as such (eye_ and dirac_ in PyTorch). A table that a program multiplies by is none
// of them, because it would do nothing.
bool is_identity(const graph::Array &array);

// Returns a phrase for the formula that the values follow, such as "a bank of filters". The phrase fits behind the word
// "holds". Returns "" if the values follow no formula. Random numbers follow none, and neither do weights that were
// random before training. If `coarse` is true, whole numbers and halves in any order (grids, masks) count as a formula
// too. Pass false for operands and norms, because their weights can start as such numbers: a norm's scale starts as
// ones.
std::string formula_of(const graph::Array &array, bool coarse);

}  // namespace protrain::passes
