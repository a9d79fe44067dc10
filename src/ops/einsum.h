// Einsum's equation, resolved against the shapes of its operands.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/op.h"

namespace protrain::ops {

// A label is a letter, or a code above all letters for an axis under an ellipsis. A label repeated within an
// operand means its diagonal.
struct Einsum {
  std::vector<std::u32string> operands;
  std::u32string output;
  std::map<char32_t, std::int64_t> dims;

  Shape shape_of(const std::u32string &labels) const;
};

// Code::graph, Code::shape with the node's name.
Einsum resolve_einsum(const Node &node, const std::vector<Shape> &shapes);

}  // namespace protrain::ops
