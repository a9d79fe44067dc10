// The discrete Fourier transform as a product with a matrix. Complex numbers are pairs along the last axis.
#pragma once

#include <vector>

#include "ops/op.h"

namespace protrain::ops {

struct Fourier {
  std::size_t axis;
  std::int64_t length;  // of the transform
  std::int64_t terms;   // number of elements that are read; elements that the input lacks are 0
  std::int64_t bins;    // number of results that are kept
  std::int64_t parts;   // numbers in a result: 1 if the results are real, else 2
  bool inverse;
};

// Returns the transform that the DFT node `node` applies to an input of shape `x`. Throws Code::graph or
// Code::unsupported, with the node's name.
Fourier fourier_of(const Node &node, const Shape &x);
// Returns the matrix that multiplies a signal of `rows` elements to give its transform. The matrix has rows * parts
// rows and bins * fourier.parts columns, and is stored row by row. `parts` is 1 for real and 2 for complex elements.
std::vector<double> fourier_matrix(const Fourier &fourier, std::int64_t rows, std::int64_t parts);

}  // namespace protrain::ops
