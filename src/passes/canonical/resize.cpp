// Rule for Resize. Along each axis that changes, it becomes a product with a constant matrix of interpolation weights,
// or a Gather of the nearest elements.
#include "ops/resize.h"

#include <fmt/format.h>

#include "base/error.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

// Resizes one axis: (..., from, ...) -> (..., to, ...).
ValueId along_axis(Canonical &c, const Node &node, ValueId x, std::size_t axis, const ops::ResizedAxis &resized) {
  Shape shape = c.shape(x);
  const std::string key = fmt::format("Resize {} {} {}", resized.scale, resized.from, node.attributes.print());
  if (node.attributes.text("mode", "nearest") == "nearest") {
    const Type list = {DType::i64, {resized.to}};
    const ValueId elements =
        c.constant(key, list, [&] { return graph::Array::from_integers(list, ops::nearest_elements(node, resized)); });
    return c.add("Gather", {x, elements}, {{"axis", static_cast<std::int64_t>(axis)}});
  }
  const auto at = shape.begin() + static_cast<std::ptrdiff_t>(axis);
  const Shape matrices = {element_count({shape.begin(), at}), resized.from, element_count({at + 1, shape.end()})};
  const Type type = {c.type(x).dtype, {resized.to, resized.from}};
  const ValueId weights =
      c.constant(key, type, [&] { return graph::Array::from_doubles(type, ops::resize_weights(node, resized)); });
  const ValueId made = c.add("MatMul", {weights, c.reshape(x, matrices)});
  shape[axis] = resized.to;
  return c.reshape(made, shape);
}

bool resize(Canonical &c, Node &node) {
  const std::string coordinates = node.attributes.text("coordinate_transformation_mode", "half_pixel");
  require(coordinates != "tf_crop_and_resize", Code::unsupported, node.name,
          "Resize with coordinates {} is not supported, because it cuts x to a region", coordinates);
  const auto constant = [&](std::size_t i) -> const graph::Array * {
    const graph::Array *array = has(node, i) ? c.constant_of(node.inputs[i]) : nullptr;
    return array != nullptr && element_count(array->shape()) > 0 ? array : nullptr;
  };
  ValueId x = node.inputs.at(0);
  if ((constant(2) == nullptr) == (constant(3) == nullptr) || !is_float(c.type(x).dtype)) return false;
  const std::vector<ops::ResizedAxis> axes = ops::resized_axes(node, c.shape(x), constant(2), constant(3));
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (axes[i].to != axes[i].from || axes[i].scale != 1) x = along_axis(c, node, x, i, axes[i]);
  c.pass(node, x);
  return true;
}

}  // namespace

Rules resize_rules() { return {{"Resize", resize}}; }

}  // namespace protrain::passes
