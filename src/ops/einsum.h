// Einsum's equation, resolved against the shapes of its operands.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ops/op.h"

namespace protrain::ops {

// `operands` and `output` label the axes of each operand and of the output. `dims` gives the length that all axes with
// a label have. A label is a letter, or a code above all letters for an axis under an ellipsis. A label that occurs
// twice in an operand means the diagonal of those axes.
struct Einsum {
  std::vector<std::u32string> operands;
  std::u32string output;
  std::map<char32_t, std::int64_t> dims;

  Shape shape_of(const std::u32string &labels) const;
};

// Throws Code::graph if the equation is wrong, and Code::shape if the shapes do not agree with the equation. Both
// errors name the node.
Einsum resolve_einsum(const Node &node, const std::vector<Shape> &shapes);

}  // namespace protrain::ops
