// Dropout: y = keep ? x / (1 - ratio) : 0, and the mask `keep`. The mask is not stored: it is a function of the node's
// `key`, the step, the seed and the element's position (arith/random.h), so the gradient draws the same mask again. In
// ONNX the ratio is an input. passes/canonical/random.cpp makes it an attribute, gives each node a key, and sets
// `samples`, the number of samples that lie one after the other along axis 0 (0: axis 0 holds no samples).
#include "ops/families.h"

#include "base/error.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

std::vector<Type> infer_dropout(const NodeTypes &types) {
  const Type &x = types.input(0);
  const auto ratio = static_cast<float>(types.node.attributes.real("ratio", 0.5));
  require(is_float(x.dtype), Code::type, types.subject(), "Dropout does not take {}", name_of(x.dtype));
  require(ratio >= 0 && ratio < 1, Code::arg, types.subject(), "the ratio of Dropout is {}; it must be in [0, 1)",
          ratio);
  const std::int64_t samples = types.node.attributes.integer("samples", 0);
  require(samples == 0 || (samples > 0 && !x.shape.empty() && x.shape[0] % samples == 0), Code::shape, types.subject(),
          "{} does not hold {} samples", to_text(x.shape), samples);
  return {x, {DType::boolean, x.shape}};
}

void differentiate_dropout(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy != ValueId::none) builder.contribute(node.inputs[0], builder.emit("Dropout", {dy}, node.attributes));
}

}  // namespace

// Dropout has no reference evaluation, so constants that pass through it are not folded.
Family dropout_family() {
  return {{.name = "Dropout",
           .infer = infer_dropout,
           .gradient = differentiate_dropout,
           .absorbed = {{1, "ratio"}, {2, "training_mode"}},
           .elementwise = true}};
}

}  // namespace protrain::ops
