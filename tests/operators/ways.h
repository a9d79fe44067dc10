// The ways in which each case is run: by the kernels of the CPU, by folding, and backwards.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "operators/case.h"

namespace protrain::test {

enum class Outcome {
  computed,      // kernels gave the expected result, from inputs that were not constants
  folded,        // reference evaluation gave it; the model is refused on data
  inapplicable,  // random, or element types or kinds of values that no model here can have
  refused,       // an error said why
  wrong,         // neither an error nor what was expected
};

enum class Slope {
  none,     // not a function of floats
  checked,  // equal to finite differences
  refused,  // the operator has no slope
  wrong,
};

struct Result {
  Outcome outcome = Outcome::refused;
  Slope slope = Slope::none;
  std::string reason;   // for refused, inapplicable and wrong
  std::string without;  // float inputs without a gradient
};

Result run(const Case &given);  // an exception that is no Error counts as wrong

}  // namespace protrain::test
