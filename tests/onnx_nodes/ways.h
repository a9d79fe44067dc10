// The ways to run one case: by the CPU's kernels, by folding, and backwards.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_nodes/case.h"

namespace protrain::test {

enum class Outcome {
  computed,      // kernels gave the expected result from unknown inputs
  folded,        // reference evaluation did; on data it is refused
  inapplicable,  // element types or kinds of values that no model here can have, or random
  refused,       // an error said why
  wrong,         // neither an error nor the expected result
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
  std::string without;  // float inputs without a gradient
};

Result run(const Case &given);  // any exception except an Error is wrong

}  // namespace protrain::test
