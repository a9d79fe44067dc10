// Checks a composed model. The gradients that kernels compute after all passes must agree with the float64 reference.
// The reference's gradients must agree with finite differences.
#pragma once

#include <string>

#include "composed/composer.h"
#include "composed/kernels.h"

namespace protrain::test {

struct Verdict {
  enum class Kind : std::uint8_t {
    right,
    refused,    // it cannot be trained, and an error says so
    unsettled,  // the kernels ran, but numbers are not finite, or rounding may decide on which side of a kink they are
    wrong,
  } kind = Kind::right;
  std::string text;    // the reason of refused and wrong
  int directions = 0;  // the number of directions in which gradients were compared with finite differences
};

Verdict check(const Recipe &recipe, KernelRun &kernels);

// Reduces a recipe whose verdict is `wrong`. Skips a step if the verdict stays `wrong` without it, and repeats this
// until no further step can be skipped.
Recipe shrunk(Recipe recipe, KernelRun &kernels);

// The nodes of the recipe's model, as text.
std::string print(const Recipe &recipe);

}  // namespace protrain::test
