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

// Returns the transform that the DFT node `node` applies to an input of shape `x`. Throws Code::graph or
// Code::unsupported, with the node's name.
Fourier fourier_of(const Node &node, const Shape &x);
// Returns the matrix that multiplies a signal of `rows` elements to give its transform. The matrix has rows * parts
// rows and bins * 2 columns, and is stored row by row. `parts` is 1 for real and 2 for complex elements.
std::vector<double> fourier_matrix(const Fourier &fourier, std::int64_t rows, std::int64_t parts);

}  // namespace protrain::ops
