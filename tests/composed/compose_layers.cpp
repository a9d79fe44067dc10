// Steps that are layers: products, norms, windows, attention, and layers that repeat.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "composed/composer.h"

namespace protrain::test {

namespace {
const Attributes kKept = {{"axes", Integers{-1}}, {"keepdims", std::int64_t{1}}};
}

void Composer::linear() {
  const ValueId x = any();
  const std::int64_t width = dim();
  ValueId y;
  if (dice_.chance(0.3))  // the weight in PyTorch's layout
    y = add("MatMul", {x, add("Transpose", {parameter({width, shape(x).back()})}, {{"perm", Integers{1, 0}}})});
  else
    y = add("MatMul", {x, parameter({shape(x).back(), width})});
  if (dice_.chance(0.6)) y = add("Add", {y, parameter({dice_.chance(0.9) ? width : 1})});
  keep(y);
}

void Composer::gemm() {
  const ValueId x = of_rank(2);
  const std::int64_t width = dim();
  const std::int64_t transposed = dice_.below(2), other = dice_.below(2);
  const std::int64_t depth = shape(x)[transposed != 0 ? 0 : 1], rows = shape(x)[transposed != 0 ? 1 : 0];
  std::vector<ValueId> inputs = {x, parameter(other != 0 ? Shape{width, depth} : Shape{depth, width})};
  if (dice_.chance(0.7))
    inputs.push_back(parameter(dice_.of<Shape>({{width}, {1, width}, {rows, 1}, {}, {rows, width}})));
  keep(add("Gemm", inputs,
           {{"transA", transposed},
            {"transB", other},
            {"alpha", dice_.of({1.0, 1.0, 0.5})},
            {"beta", dice_.of({1.0, 1.0, 2.0})}}));
}

// Products of two values that both depend on parameters.
void Composer::products() {
  const ValueId x = of_rank(static_cast<std::size_t>(dice_.between(2, 4)));
  Integers perm;
  for (std::size_t i = 0; i < rank(x); ++i) perm.push_back(static_cast<std::int64_t>(i));
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  switch (dice_.below(4)) {
    case 0:
      return keep(add("MatMul", {x, add("Transpose", {x}, {{"perm", perm}})}));
    case 1:
      return keep(add("MatMul", {add("Transpose", {x}, {{"perm", perm}}), x}));
    case 2:
      return keep(add("MatMul", {x, parameter({shape(x).back()})}));
    default: {  // a batch of weights, or one weight for the whole batch
      Shape weights(shape(x).begin(), shape(x).end() - 2);
      if (!weights.empty() && dice_.chance(0.5)) weights[0] = 1;
      weights.insert(weights.end(), {shape(x).back(), dim()});
      return keep(add("MatMul", {x, parameter(weights)}));
    }
  }
}

void Composer::einsum() {
  const ValueId x = of_rank(3);
  const Shape s = shape(x);
  struct Form {
    const char *equation;
    Shape other;
  };
  const Form form = dice_.of<Form>({{"abc,cd->abd", {s[2], dim()}},
                                    {"abc,adc->abd", {s[0], dim(), s[2]}},
                                    {"abc,bc->ac", {s[1], s[2]}},
                                    {"abc,bd->acd", {s[1], dim()}},
                                    {"...c,dc->...d", {dim(), s[2]}}});
  keep(add("Einsum", {x, parameter(form.other)}, {{"equation", std::string(form.equation)}}));
}

void Composer::layer_norm() {
  const ValueId x = any();
  const std::int64_t axis = dice_.chance(0.8) ? static_cast<std::int64_t>(rank(x)) - 1 : axis_of(x);
  const Shape normalized(shape(x).begin() + axis, shape(x).end());
  const Attributes attributes = {{"axis", dice_.chance(0.5) ? axis : axis - static_cast<std::int64_t>(rank(x))},
                                 {"epsilon", dice_.of({0x1p-17, 0.125})}};
  const ValueId scale = parameter(normalized, 0.5, 1.5);
  if (dice_.chance(0.3)) return keep(add("RMSNormalization", {x, scale}, attributes));
  std::vector<ValueId> inputs = {x, scale};
  if (dice_.chance(0.7)) inputs.push_back(parameter(normalized));
  keep(add_all("LayerNormalization", inputs, attributes, static_cast<std::size_t>(dice_.between(1, 3)))[0]);
}

void Composer::norm_by_hand() {
  ValueId x = any();
  const bool centred = dice_.chance(0.6);
  if (centred) x = add("Sub", {x, add("ReduceMean", {x}, kKept)});
  const ValueId square = dice_.chance(0.5) ? add("Mul", {x, x}) : add("Pow", {x, number(2)});
  const ValueId variance = add("ReduceMean", {square}, kKept);
  const ValueId root = add("Sqrt", {add("Add", {variance, number(1e-2)})});
  ValueId y = dice_.chance(0.5) ? add("Div", {x, root}) : add("Mul", {x, add("Reciprocal", {root})});
  y = add("Mul", {y, parameter({shape(x).back()}, 0.5, 1.5)});
  if (dice_.chance(0.6)) y = add("Add", {y, parameter({shape(x).back()})});
  keep(y);
  if (dice_.chance(0.1)) keep(variance);
}

void Composer::channel_norm() {
  const ValueId x = of_rank(static_cast<std::size_t>(dice_.between(3, 4)));
  const std::int64_t channels = shape(x)[1];
  const auto vector = [&] { return parameter({channels}, 0.5, 1.5); };
  switch (dice_.below(5)) {
    case 0:
      return keep(add("InstanceNormalization", {x, vector(), vector()}, {{"epsilon", 0.125}}));
    case 1:
      return keep(add("GroupNormalization", {x, vector(), vector()},
                      {{"num_groups", channels % 2 == 0 && dice_.chance(0.5) ? std::int64_t{2} : std::int64_t{1}},
                       {"epsilon", 0.125}}));
    case 2:
      return keep(add("BatchNormalization", {x, vector(), vector(), vector(), vector()}, {{"epsilon", 0x1p-10}}));
    case 3:
      return keep(
          add("LpNormalization", {add("Add", {x, number(2)})}, {{"axis", axis_of(x)}, {"p", dice_.between(1, 2)}}));
    default:
      return keep(add("MeanVarianceNormalization", {x}, {{"axes", Integers{0, 2}}}));
  }
}

void Composer::convolve() {
  const std::size_t axes = static_cast<std::size_t>(dice_.between(1, 2));
  const ValueId x = of_rank(axes + 2);
  const std::int64_t channels = shape(x)[1];
  const std::int64_t groups = channels % 2 == 0 && dice_.chance(0.3) ? 2
                              : dice_.chance(0.15)                   ? std::max<std::int64_t>(channels, 1)
                                                                     : 1;
  const std::int64_t made = groups * dice_.between(1, 2);
  const bool transposed = dice_.chance(0.3);
  Shape weights = transposed ? Shape{channels, made / groups} : Shape{made, channels / groups};
  Integers strides, pads(2 * axes);
  for (std::size_t i = 0; i < axes; ++i) {
    weights.push_back(dice_.between(1, std::min<std::int64_t>(3, shape(x)[i + 2] + 1)));
    strides.push_back(dice_.between(1, 2));
    if (dice_.chance(0.4)) pads[i] = pads[axes + i] = dice_.between(0, weights.back() - 1);
  }
  std::vector<ValueId> inputs = {x, parameter(weights)};
  if (dice_.chance(0.5)) inputs.push_back(parameter({made}));
  Attributes attributes = {{"group", groups}, {"strides", strides}, {"pads", pads}};
  if (dice_.chance(0.2)) attributes.set("dilations", Integers(axes, 2));
  keep(add(transposed ? "ConvTranspose" : "Conv", inputs, attributes));
}

void Composer::pool() {
  const std::size_t axes = static_cast<std::size_t>(dice_.between(1, 2));
  const ValueId x = of_rank(axes + 2);
  if (dice_.chance(0.2)) return keep(add(dice_.of<const char *>({"GlobalAveragePool", "GlobalMaxPool"}), {x}));
  Integers kernel, strides;
  for (std::size_t i = 0; i < axes; ++i) {
    kernel.push_back(dice_.between(1, std::min<std::int64_t>(3, std::max<std::int64_t>(shape(x)[i + 2], 1))));
    strides.push_back(dice_.between(1, 2));
  }
  Attributes attributes = {{"kernel_shape", kernel}, {"strides", strides}, {"ceil_mode", dice_.below(2)}};
  if (dice_.chance(0.3)) {
    Integers pads(2 * axes);
    for (std::size_t i = 0; i < axes; ++i) pads[i] = pads[axes + i] = kernel[i] / 2;
    attributes.set("pads", pads);
  }
  if (dice_.chance(0.5)) return keep(add("MaxPool", {x}, attributes));
  attributes.set("count_include_pad", dice_.below(2));
  keep(add("AveragePool", {x}, attributes));
}

void Composer::resize() {
  const ValueId x = of_rank(static_cast<std::size_t>(dice_.between(3, 4)));
  Integers sizes = shape(x);
  for (std::size_t i = 2; i < sizes.size(); ++i) sizes[i] = dice_.between(1, std::max<std::int64_t>(2 * sizes[i], 1));
  const Attributes attributes = {{"mode", std::string(dice_.of<const char *>({"nearest", "linear"}))}};
  keep(add("Resize", {x, ValueId::none, ValueId::none, integers(sizes, {static_cast<std::int64_t>(sizes.size())})},
           attributes));
}

void Composer::attention() {
  const ValueId x = of_rank(3);  // (B, S, width)
  const std::int64_t kv_heads = dice_.between(1, 2), heads = kv_heads * dice_.between(1, 2),
                     depth = dice_.between(1, 4), value_depth = dice_.chance(0.7) ? depth : dice_.between(1, 3),
                     width = shape(x)[2];
  const ValueId memory = dice_.chance(0.7) ? x : parameter({shape(x)[0], dice_.between(1, 4), width});
  const ValueId q = add("MatMul", {x, parameter({width, heads * depth})}),
                k = add("MatMul", {memory, parameter({width, kv_heads * depth})}),
                v = dice_.chance(0.1) && value_depth == depth
                        ? k
                        : add("MatMul", {memory, parameter({width, kv_heads * value_depth})});
  const Shape scores = {shape(x)[0], heads, shape(x)[1], shape(memory)[1]};
  std::vector<ValueId> inputs = {q, k, v};
  Attributes attributes = {{"q_num_heads", heads}, {"kv_num_heads", kv_heads}, {"is_causal", dice_.below(2)}};
  if (dice_.chance(0.3)) attributes.set("softcap", 1.5);
  if (dice_.chance(0.3)) attributes.set("scale", 0.375);
  if (dice_.chance(0.4)) {
    const Shape of_mask = dice_.chance(0.5) ? Shape{scores[2], scores[3]} : Shape{scores[0], 1, 1, scores[3]};
    inputs.push_back(dice_.chance(0.3) ? truths(of_mask) : dice_.chance(0.2) ? parameter(of_mask) : input(of_mask));
  }
  std::size_t outputs = 1;
  if (dice_.chance(0.15)) outputs = 4;
  const std::vector<ValueId> made = add_all("Attention", inputs, attributes, outputs);
  if (outputs < 4 || dice_.chance(0.6)) keep(made[0]);
  if (outputs == 4) keep(made[static_cast<std::size_t>(dice_.between(1, 3))]);
}

// Attention as exporters for older opsets write it, which the passes fuse.
void Composer::attention_by_hand() {
  const ValueId x = of_rank(3);
  const std::int64_t heads = dice_.between(1, 2), depth = dice_.between(1, 4), b = shape(x)[0], s = shape(x)[1],
                     width = shape(x)[2];
  const auto projected = [&] {
    const ValueId y = add("MatMul", {x, parameter({width, heads * depth})});
    return add("Transpose",
               {add("Reshape", {y}, {{"shape", Integers{b, s, heads, depth}}, {"allowzero", std::int64_t{1}}})},
               {{"perm", Integers{0, 2, 1, 3}}});
  };
  const ValueId q = projected(), k = projected(), v = projected();
  ValueId scores = add("MatMul", {q, add("Transpose", {k}, {{"perm", Integers{0, 1, 3, 2}}})});
  scores = add(dice_.chance(0.5) ? "Mul" : "Div", {scores, number(dice_.of({0.5, 2.0}))});
  if (dice_.chance(0.4)) {
    const ValueId visible = add("Trilu", {made_.graph.add_constant("mask", Array::filled({floats_, {s, s}}, 1))},
                                {{"upper", std::int64_t{0}}});
    scores = add("Where", {add("Equal", {visible, number(1)}), scores, number(-1e9)});
  }
  const ValueId p = add("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  const ValueId y = add("Transpose", {add("MatMul", {p, v})}, {{"perm", Integers{0, 2, 1, 3}}});
  keep(add("Reshape", {y}, {{"shape", Integers{b, s, heads * depth}}, {"allowzero", std::int64_t{1}}}));
  if (dice_.chance(0.1)) keep(p);
}

void Composer::rotary() {
  const ValueId x = of_rank(4);  // (B, H, S, D)
  const std::int64_t half = shape(x)[3] / 2;
  if (half == 0) return;
  const Shape table = {shape(x)[0], shape(x)[2], half};
  std::vector<double> cos, sin;
  for (std::int64_t i = 0; i < element_count(table); ++i) {
    const double angle = dice_.real(0, 3);
    cos.push_back(static_cast<double>(static_cast<float>(std::cos(angle))));
    sin.push_back(static_cast<double>(static_cast<float>(std::sin(angle))));
  }
  const auto constant = [&](const std::vector<double> &values) {
    return made_.graph.add_constant("table", Array::from_doubles({floats_, table}, values));
  };
  keep(add("RotaryEmbedding", {x, constant(cos), constant(sin)},
           {{"interleaved", dice_.below(2)}, {"rotary_embedding_dim", 2 * half}}));
}

// Layers that differ only in their weights, so that the search for blocks finds them.
void Composer::layers() {
  ValueId x = of_rank(static_cast<std::size_t>(dice_.between(2, 3)));
  const std::int64_t width = shape(x).back(), inner = dim();
  const bool normed = dice_.chance(0.7), tied = dice_.chance(0.2);
  const char *activation = dice_.of<const char *>({"Tanh", "Gelu", "Relu"});
  ValueId down = ValueId::none;
  for (std::int64_t i = dice_.between(2, 4); i > 0; --i) {
    ValueId y = x;
    if (normed)
      y = add("LayerNormalization", {y, parameter({width}, 0.5, 1.5), parameter({width})}, {{"epsilon", 0.125}});
    y = add(activation, {add("Add", {add("MatMul", {y, parameter({width, inner})}), parameter({inner})})});
    if (down == ValueId::none || !tied) down = parameter({inner, width});
    x = add("Add", {x, add("MatMul", {y, down})});
  }
  keep(x);
}

}  // namespace protrain::test
