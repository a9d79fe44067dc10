// Operators that give the same elements another shape, and operators that repeat elements.
#include <algorithm>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

// Returns an attribute that was an input in the file. Code::unsupported if that input is not constant.
std::vector<std::int64_t> absorbed_list(const NodeTypes &types, const char *name) {
  require(types.node.attributes.has(name), Code::unsupported, types.subject(),
          "the {} of {} is computed from data; shapes that depend on data are not supported", name, types.node.op);
  return types.node.attributes.integers(name);
}

// Infers the result of Reshape. One dim may be -1 and takes the remaining elements. A dim of 0 means 0 here. In ONNX a
// 0 can mean that the input's dim stays, but passes/canonical/fold.cpp has replaced such zeros.
std::vector<Type> infer_reshape(const NodeTypes &types) {
  const Type &x = types.input(0);
  Shape shape = absorbed_list(types, "shape");
  const std::int64_t elements = element_count(x.shape);
  std::int64_t known = 1;
  auto open = shape.end();
  for (auto dim = shape.begin(); dim != shape.end(); ++dim) {
    require(*dim >= -1 && (*dim != -1 || open == shape.end()), Code::shape, types.subject(),
            "{} is not a shape to reshape to", to_text(types.node.attributes.integers("shape")));
    if (*dim == -1)
      open = dim;
    else
      known = element_count({known, *dim});
  }
  if (open != shape.end()) *open = known == 0 ? 0 : elements / known;
  require(element_count(shape) == elements, Code::shape, types.subject(), "{} elements of {} do not fill {}", elements,
          to_text(x.shape), to_text(types.node.attributes.integers("shape")));
  return {{x.dtype, shape}};
}

std::vector<Type> infer_squeeze(const NodeTypes &types) {
  const Type &x = types.input(0);
  if (types.has(1)) absorbed_list(types, "axes");
  std::vector<bool> drop(x.shape.size(), !types.node.attributes.has("axes"));
  for (std::int64_t axis : types.node.attributes.integers("axes"))
    drop[resolve_axis(axis, x.shape.size(), types.subject())] = true;
  Shape shape;
  for (std::size_t i = 0; i < x.shape.size(); ++i) {
    require(!drop[i] || x.shape[i] == 1 || !types.node.attributes.has("axes"), Code::shape, types.subject(),
            "axis {} of {} is not 1 and cannot be dropped", i, to_text(x.shape));
    if (!drop[i] || x.shape[i] != 1) shape.push_back(x.shape[i]);
  }
  return {{x.dtype, shape}};
}

std::vector<Type> infer_unsqueeze(const NodeTypes &types) {
  const Type &x = types.input(0);
  const std::vector<std::int64_t> axes = absorbed_list(types, "axes");
  const std::size_t rank = x.shape.size() + axes.size();
  std::vector<bool> fresh(rank, false);
  for (std::int64_t axis : axes) {
    const std::size_t at = resolve_axis(axis, rank, types.subject());
    require(!fresh[at], Code::shape, types.subject(), "axis {} is inserted twice", axis);
    fresh[at] = true;
  }
  Shape shape;
  for (std::size_t i = 0, next = 0; i < rank; ++i) shape.push_back(fresh[i] ? 1 : x.shape[next++]);
  return {{x.dtype, shape}};
}

std::vector<Type> infer_flatten(const NodeTypes &types) {
  const Type &x = types.input(0);
  const std::int64_t axis = types.node.attributes.integer("axis", 1);
  const auto rank = static_cast<std::int64_t>(x.shape.size());
  require(axis >= -rank && axis <= rank, Code::shape, types.subject(), "axis {} is outside {}", axis, to_text(x.shape));
  const auto cut = x.shape.begin() + (axis < 0 ? axis + rank : axis);
  return {{x.dtype, {element_count(Shape(x.shape.begin(), cut)), element_count(Shape(cut, x.shape.end()))}}};
}

std::vector<Array> evaluate_reshape(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  return {in[0]->reshaped(out[0].shape)};
}

void differentiate_reshape(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  builder.contribute(node.inputs[0], builder.emit("Reshape", {dy}, {{"shape", builder.type(node.inputs[0]).shape}}));
}

std::vector<Type> infer_expand(const NodeTypes &types) {
  const Shape wanted = absorbed_list(types, "shape");
  element_count(wanted);  // throws if a dim is negative
  return {{types.input(0).dtype, broadcast(types.input(0).shape, wanted, types.subject())}};
}

std::vector<Array> evaluate_expand(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  return {in[0]->expanded(out[0].shape)};
}

void differentiate_expand(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  builder.contribute(node.inputs[0], sum_to(builder, dy, builder.type(node.inputs[0]).shape));
}

std::vector<Type> infer_tile(const NodeTypes &types) {
  const Type &x = types.input(0);
  const std::vector<std::int64_t> repeats = absorbed_list(types, "repeats");
  require(repeats.size() == x.shape.size(), Code::shape, types.subject(), "{} repeats for {}", repeats.size(),
          to_text(x.shape));
  Shape shape = x.shape;
  for (std::size_t i = 0; i < shape.size(); ++i) shape[i] = element_count({shape[i], repeats[i]});
  return {{x.dtype, shape}};
}

std::vector<Array> evaluate_tile(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  // With dims d and repeats r: (d0, d1) -> (1, d0, 1, d1) -> (r0, d0, r1, d1) -> (r0 d0, r1 d1).
  Shape split, stretched;
  const std::vector<std::int64_t> repeats = node.attributes.integers("repeats");
  for (std::size_t i = 0; i < repeats.size(); ++i) {
    split.insert(split.end(), {1, in[0]->shape()[i]});
    stretched.insert(stretched.end(), {repeats[i], in[0]->shape()[i]});
  }
  return {in[0]->reshaped(split).expanded(stretched).reshaped(out[0].shape)};
}

}  // namespace

Family reshape_family() {
  return {{.name = "Reshape",
           .infer = infer_reshape,
           .evaluate = evaluate_reshape,
           .gradient = differentiate_reshape,
           .absorbed = {{1, "shape"}},
           .storage = Storage::alias},
          // The identity, through which no gradient passes: PyTorch's detach().
          {.name = "StopGradient",
           .infer = same_as_input,
           .evaluate = evaluate_reshape,
           .flat = true,
           .storage = Storage::alias},
          {.name = "Squeeze",
           .infer = infer_squeeze,
           .evaluate = evaluate_reshape,
           .absorbed = {{1, "axes"}},
           .file_only = true},
          {.name = "Unsqueeze",
           .infer = infer_unsqueeze,
           .evaluate = evaluate_reshape,
           .absorbed = {{1, "axes"}},
           .file_only = true},
          {.name = "Flatten", .infer = infer_flatten, .evaluate = evaluate_reshape, .file_only = true},
          {.name = "Identity", .infer = same_as_input, .evaluate = evaluate_reshape, .file_only = true},
          {.name = "Expand",
           .infer = infer_expand,
           .evaluate = evaluate_expand,
           .gradient = differentiate_expand,
           .absorbed = {{1, "shape"}},
           .elementwise = true,
           .repeats = true},
          {.name = "Tile",
           .infer = infer_tile,
           .evaluate = evaluate_tile,
           .absorbed = {{1, "repeats"}},
           .file_only = true}};
}

}  // namespace protrain::ops
