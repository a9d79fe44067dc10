// The state of an optimizer for tests of Programs: `count` moments in float32.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "graph/optimizer_array.h"

namespace protrain::test {

inline std::vector<graph::OptimizerArray> moments(std::size_t count) {
  std::vector<graph::OptimizerArray> arrays;
  for (std::size_t i = 0; i < count; ++i) arrays.push_back({.name = fmt::format("moment{}", i + 1)});
  return arrays;
}

}  // namespace protrain::test
