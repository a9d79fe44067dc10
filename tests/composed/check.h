// The check of a composed model. Its gradients, computed by kernels after all passes, must equal the reference's in
// float64, and the reference's must equal finite differences.
#pragma once

#include <string>

#include "composed/composer.h"
#include "composed/kernels.h"

namespace protrain::test {

struct Verdict {
  enum class Kind : std::uint8_t {
    right,
    refused,    // the model cannot be trained, and an error says so
    unsettled,  // kernels ran, but a number is not finite, or so near a kink that float32 may take the other side
    wrong,
  } kind = Kind::right;
  std::string text;    // reason of refused and wrong
  int directions = 0;  // directions in which finite differences were compared
};

Verdict check(const Recipe &recipe, KernelRun &kernels);

// The recipe without all steps that are not needed for it to be wrong.
Recipe shrunk(Recipe recipe, KernelRun &kernels);

// The model's nodes as text.
std::string print(const Recipe &recipe);

}  // namespace protrain::test
