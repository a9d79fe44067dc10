// LowRank: a low-rank change (LoRA) of initializers of a saved model. Its two matrices A and B are inputs of the model.
#pragma once

#include <string>
#include <vector>

#include "base/shape.h"

namespace protrain::graph {

struct LowRank {
  // An initializer that the change is added to. Normally its shape is (out, in) and the change is B A. If `transposed`,
  // its shape is (in, out) and the change is (B A)^T.
  struct Initializer {
    std::string name;
    bool transposed = false;
  };
  std::vector<Initializer> initializers;  // the parameter, and those that are tied to it
  std::string a, b;                       // names of the inputs: A (rank, in), B (out, rank)
  std::int64_t in = 0, out = 0;
};

}  // namespace protrain::graph
