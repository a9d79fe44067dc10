// StoredMatrix: the frozen weights of a product, in the form in which they rest in memory. They are 16-bit floats, or
// integers or codes with scales and zero points. The product's kernel widens one panel of the weights at a time
// (ops/stored.h).
#pragma once

#include <optional>

#include "backend/common/quantized.h"
#include "backend/request.h"

namespace protrain::backend {

// The indices of a stored matrix and of its scales among a node's inputs. Zero points follow the scales.
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
  // `widening` is a request for the Cast or DequantizeLinear that would convert the matrix to floats.
  explicit StoredMatrix(const KernelRequest &widening);

  PROTRAIN_HD float value(const StoredOperand &from, std::int64_t element) const {
    const float x = stored_at(form, from.elements, element);
    if (from.scales == nullptr) return x;
    return arith::dequantized(x, from.scales[shape.scale(element)], shape.zero_at(from.zeros, element));
  }

  StoredForm form;
  QuantisedShape shape;
};

// Returns the stored matrix of the request's node; an empty optional if the node has none.
std::optional<StoredMatrix> stored_matrix(const KernelRequest &request, const StoredInputs &at);
// Returns a copy of the request in which a matrix of floats, without scales and zero points, takes the place of the
// stored matrix. If the request has no stored matrix, returns an unchanged copy.
KernelRequest with_floats(const KernelRequest &request, const StoredInputs &at);

}  // namespace protrain::backend
