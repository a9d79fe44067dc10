// StoredMatrix: the frozen weights of a product, which its kernel takes as they rest and widens panel by panel
// (ops/stored.h). They are floats of 16 bits, or integers with scales and zero points.
#pragma once

#include <optional>

#include "backend/common/quantized.h"
#include "backend/request.h"

namespace protrain::backend {

// The places of a stored matrix among a node's inputs: its own, and that of its scales. Zero points follow the scales.
struct StoredInputs {
  std::size_t matrix, scales;
};

// The memory of a stored matrix.
struct StoredOperand {
  const void *elements;
  const float *scales = nullptr;  // nullptr: the elements are floats
  const void *zeros = nullptr;
};
StoredOperand stored_operand(const Launch &launch, const StoredInputs &at);

struct StoredMatrix {
  // The request is for a Cast or a DequantizeLinear.
  explicit StoredMatrix(const KernelRequest &widening);

  PROTRAIN_HD float value(const StoredOperand &from, std::int64_t element) const {
    const float x = stored_at(form, from.elements, element);
    if (from.scales == nullptr) return x;
    return arith::dequantized(x, from.scales[shape.scale(element)], shape.zero_at(from.zeros, element));
  }

  StoredForm form;
  QuantisedShape shape;
};

// Returns nothing if the request's node has no stored operand.
std::optional<StoredMatrix> stored_matrix(const KernelRequest &request, const StoredInputs &at);
// Returns the request in which the floats that the matrix stands for are its operand.
KernelRequest with_floats(const KernelRequest &request, const StoredInputs &at);

}  // namespace protrain::backend
