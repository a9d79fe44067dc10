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
    unsettled,  // not finite, or so near a kink that float32 may be on the other side; the kernels did run
    wrong,
  } kind = Kind::right;
  std::string text;    // refused, wrong: why
  int directions = 0;  // compared with finite differences
};

Verdict check(const Recipe &recipe, KernelRun &kernels);

// The recipe without all the steps that it does not need to be wrong.
Recipe shrunk(Recipe recipe, KernelRun &kernels);

// The model's nodes.
std::string print(const Recipe &recipe);

}  // namespace protrain::test
