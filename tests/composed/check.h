// Checks a composed model: its gradients, as kernels compute them after all passes, against the float64 reference; and
// the reference's gradients against finite differences.
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
  std::string text;    // refused, wrong: why
  int directions = 0;  // compared with finite differences
};

Verdict check(const Recipe &recipe, KernelRun &kernels);

// Skips steps of a wrong recipe as long as its verdict stays wrong. Returns what is left.
Recipe shrunk(Recipe recipe, KernelRun &kernels);

// The nodes of the recipe's model, as text.
std::string print(const Recipe &recipe);

}  // namespace protrain::test
