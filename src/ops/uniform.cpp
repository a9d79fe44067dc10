// Uniform draws numbers in (0, 1). Like Dropout's mask, they are a function of the node's `key`, the step, the seed and
// the element's position (arith/random.h). `samples` is the number of samples that lie one after the other along axis 0
// (0: axis 0 holds no samples). passes/canonical/random.cpp computes ONNX's random operators from such numbers.
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

std::vector<Type> infer_uniform(const NodeTypes &types) {
  const Shape shape = types.node.attributes.integers("shape");
  const std::int64_t samples = types.node.attributes.integer("samples", 0);
  require(samples == 0 || (samples > 0 && !shape.empty() && shape[0] % samples == 0), Code::shape, types.subject(),
          "{} does not hold {} samples", to_text(shape), samples);
  return {{DType::f32, shape}};
}

// Returns the type that the attribute `dtype` names, or `fallback` if the node has no such attribute.
DType drawn_dtype(const NodeTypes &types, DType fallback) {
  const std::string name = types.node.attributes.text("dtype", name_of(fallback));
  const DType dtype = dtype_named(name);
  require(dtype != DType::none, Code::type, types.subject(), "{} does not make {}", types.node.op, name);
  return dtype;
}

std::vector<Type> infer_drawn(const NodeTypes &types) {
  return {{drawn_dtype(types, DType::f32), types.node.attributes.integers("shape")}};
}

std::vector<Type> infer_drawn_like(const NodeTypes &types) {
  return {{drawn_dtype(types, types.input(0).dtype), types.input(0).shape}};
}

// Infers the result of Multinomial: logarithms of probabilities (N, classes) -> classes (N, sample_size)
std::vector<Type> infer_multinomial(const NodeTypes &types) {
  const Type x = float_input(types, 0);
  const std::int64_t count = types.node.attributes.integer("sample_size", 1);
  require(x.shape.size() == 2 && x.shape[1] > 0 && count > 0, Code::shape, types.subject(),
          "Multinomial takes (batch, classes), not {}, and draws at least one sample, not {}", to_text(x), count);
  const DType dtype = drawn_dtype(types, DType::i32);
  require(is_integer(dtype), Code::type, types.subject(), "Multinomial makes integers, not {}", name_of(dtype));
  return {{dtype, {x.shape[0], count}}};
}

}  // namespace

// No operator of this family has a reference evaluation, because each step draws different numbers.
Family uniform_family() {
  return {{.name = "Uniform", .infer = infer_uniform},
          {.name = "RandomNormal", .infer = infer_drawn, .file_only = true},
          {.name = "RandomUniform", .infer = infer_drawn, .file_only = true},
          {.name = "RandomNormalLike", .infer = infer_drawn_like, .file_only = true},
          {.name = "RandomUniformLike", .infer = infer_drawn_like, .file_only = true},
          {.name = "Bernoulli", .infer = infer_drawn_like, .file_only = true},
          {.name = "Multinomial", .infer = infer_multinomial, .file_only = true}};
}

}  // namespace protrain::ops
