// Rules for the domain ai.onnx.ml. Its Scaler brings features to a common scale. Converters of scikit-learn models
// write it in front of the model.
#include "base/error.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

// Returns the numbers of attribute `key` as a constant that broadcasts along the last axis, which has `features`
// elements.
ValueId row_of(Canonical &c, const Node &node, const char *key, std::int64_t features) {
  const std::vector<double> numbers = node.attributes.reals(key);
  const auto count = static_cast<std::int64_t>(numbers.size());
  require(count == 1 || count == features, Code::graph, node.subject(),
          "{} has {} numbers; expected 1, or one for each of {} features", key, count, features);
  return c.rewriter().constant(graph::Array::from_doubles({DType::f32, {count}}, numbers));
}

// Subtracts the offsets and multiplies by the scales. These are attributes of the node, so they are not trained.
bool scaler(Canonical &c, Node &node) {
  const Shape shape = c.shape(node.inputs.at(0));
  require(!shape.empty() && shape.size() <= 2, Code::shape, node.subject(),
          "rows of features have the shape {}; expected one or two axes", to_text(shape));
  const ValueId x = c.add("Cast", {node.inputs[0]}, {{"to", std::string(name_of(DType::f32))}});
  const ValueId shifted = c.add("Sub", {x, row_of(c, node, "offset", shape.back())});
  c.become(node, "Mul", {shifted, row_of(c, node, "scale", shape.back())});
  return true;
}

}  // namespace

Rules ml_rules() { return {{"ai.onnx.ml::Scaler", scaler}}; }

}  // namespace protrain::passes
