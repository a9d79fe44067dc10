// Runs one case in three ways: on the CPU's kernels, by folding, and through its gradient.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_nodes/case.h"

namespace protrain::test {

enum class Outcome {
  computed,      // kernels gave the expected result
  folded,        // folding gave the expected result; the operator is refused on inputs that are not constant
  inapplicable,  // the case needs types or kinds of values that the library does not have, or random numbers
  refused,       // an Error says why
  wrong,         // neither an error nor the expected result
};

enum class Slope {
  none,     // the case is no function of floats, or the gradient is zero
  checked,  // the gradient equals finite differences
  refused,  // the operator has no gradient
  wrong,
};

struct Result {
  Outcome outcome = Outcome::refused;
  Slope slope = Slope::none;
  std::string reason;   // for the outcomes refused, inapplicable and wrong
  std::string without;  // float inputs without a gradient
};

Result run(const Case &given);  // any exception but an Error makes the outcome `wrong`

}  // namespace protrain::test
