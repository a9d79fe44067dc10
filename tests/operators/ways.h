// The ways in which one case is run: by the kernels of the CPU, by folding, and backwards.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "operators/case.h"

namespace protrain::test {

enum class Outcome {
  computed,      // kernels gave what was expected, from inputs that were not known before
  folded,        // reference evaluation did; on data it is refused
  inapplicable,  // of element types or kinds of values that no model here can have, or random
  refused,       // an error said why
  wrong,         // neither an error nor what was expected
};

enum class Slope {
  none,     // not a function of floats
  checked,  // equals finite differences
  refused,  // the operator has none
  wrong,
};

struct Result {
  Outcome outcome = Outcome::refused;
  Slope slope = Slope::none;
  std::string reason;   // of refused, inapplicable and wrong
  std::string without;  // inputs that no gradient goes to, of those that are floats
};

Result run(const Case &given);  // what the library throws but an Error is wrong

}  // namespace protrain::test
