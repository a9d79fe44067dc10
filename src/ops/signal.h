// The discrete Fourier transform as a product with a matrix. Complex numbers are pairs along the last axis.
#pragma once

#include <vector>

#include "ops/op.h"

namespace protrain::ops {

struct Fourier {
  std::size_t axis;
  std::int64_t length, bins;  // length of the transform; number of results that are kept
  bool inverse;
};

// Returns the transform that a DFT does on x. Throws Code::graph, Code::unsupported with the node's name.
Fourier fourier_of(const Node &node, const Shape &x);
// Returns a matrix (rows, parts, bins, 2), row-major, of the transform of the first `rows` elements. `parts` is 1 for
// real and 2 for complex elements.
std::vector<double> fourier_matrix(const Fourier &fourier, std::int64_t rows, std::int64_t parts);

}  // namespace protrain::ops
