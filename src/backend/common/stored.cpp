#include "backend/common/stored.h"

namespace protrain::backend {

namespace {

bool has_stored(const KernelRequest &request) { return request.node.attributes.has("stored"); }

// Returns the type that the stored matrix has once its elements are widened to floats.
graph::Type floats_of(const KernelRequest &request, const StoredInputs &at) {
  const graph::Attributes &attributes = request.node.attributes;
  const bool packed = attributes.integer("bits", 8) == 4;
  return {request.inputs.at(0).dtype, packed ? attributes.integers("shape") : request.inputs.at(at.matrix).shape};
}

}  // namespace

StoredOperand stored_operand(const Launch &launch, const StoredInputs &at) {
  return {launch.inputs[at.matrix], optional_input<float>(launch, at.scales),
          optional_input<void>(launch, at.scales + 1)};
}

StoredMatrix::StoredMatrix(const KernelRequest &widening)
    : form(quantised_form(widening)),
      shape(has_input(widening, 1) ? QuantisedShape(widening, widening.outputs.at(0).shape, 1)
                                   : QuantisedShape(widening.outputs.at(0).shape)) {}

std::optional<StoredMatrix> stored_matrix(const KernelRequest &request, const StoredInputs &at) {
  if (!has_stored(request)) return std::nullopt;
  KernelRequest widening{request.node, {request.inputs.at(at.matrix)}, {floats_of(request, at)}};
  for (std::size_t i = at.scales; i < request.inputs.size(); ++i) widening.inputs.push_back(request.inputs[i]);
  return StoredMatrix(widening);
}

KernelRequest with_floats(const KernelRequest &request, const StoredInputs &at) {
  if (!has_stored(request)) return request;
  KernelRequest floats = request;
  floats.inputs[at.matrix] = floats_of(request, at);
  if (floats.inputs.size() > at.scales) floats.inputs.resize(at.scales);
  return floats;
}

}  // namespace protrain::backend
