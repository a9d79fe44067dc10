// The check of a composed model: its gradients, as kernels compute them after all passes, beside the reference in
// float64; and the reference's beside finite differences.
#pragma once

#include <string>

#include "composed/composer.h"
#include "composed/kernels.h"

namespace protrain::test {

struct Verdict {
  enum class Kind : std::uint8_t {
    right,
    refused,    // it cannot be trained, and an error says so
    unsettled,  // numbers that are not finite, or so near a kink that float32 may take the other side: kernels ran
    wrong,
  } kind = Kind::right;
  std::string text;    // refused, wrong: why
  int directions = 0;  // along which finite differences were compared
};

Verdict check(const Recipe &recipe, KernelRun &kernels);

// The recipe with all the steps left out that it is wrong without.
Recipe shrunk(Recipe recipe, KernelRun &kernels);

// The model's nodes.
std::string print(const Recipe &recipe);

}  // namespace protrain::test
