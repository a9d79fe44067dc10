// A small node of every operator that has a kernel, with all its possible inputs and outputs.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/kernel_table.h"
#include "kernel_nodes.h"
#include "recurrent_nodes.h"

namespace protrain::test {

inline std::vector<std::string_view> kernel_names() {
#define PROTRAIN_NAMES(MAKE, ...) __VA_ARGS__,
  return {PROTRAIN_KERNELS(PROTRAIN_NAMES)};
#undef PROTRAIN_NAMES
}

inline Array doubles(double value) { return Array::scalar(DType::f64, value); }

inline Array truths(const Shape &shape, unsigned seed) { return random_integers(shape, seed, 0, 2, DType::boolean); }

inline std::vector<OneNode> loss_nodes() {
  const Attributes mean{{"reduction", std::string("mean")}};
  const Array x = random_floats({6, 4}, 1), w = random_floats({5, 4}, 2), bias = random_floats({5}, 3),
              logits = random_floats({6, 5}, 4), labels = random_integers({6}, 5, 0, 5);
  const Array weights = random_floats({6}, 6, 0.5, 2);
  const Array speech = random_floats({2, 5, 4}, 7), spoken = random_integers({2, 2}, 8, 1, 4),
              lengths = Array::from_integers({DType::i64, {2}}, {5, 4});
  const OneNode plain{"CrossEntropy", mean, {logits, labels, weights}, {true, true}};
  return {plain,
          {"CrossEntropyGrad", mean, {floats({}, {0.5}), logits, labels, reference(plain)[1], weights}},
          {"CtcLoss", {{"blank", std::int64_t{0}}}, {speech, spoken, lengths}},
          {"CtcLossGrad", {{"blank", std::int64_t{0}}}, {floats({}, {0.5}), speech, spoken, lengths}},
          {"LinearCrossEntropy", mean, {x, w, labels, bias, weights}},
          {"LinearCrossEntropyGrad", mean, {x, w, labels, bias, weights, floats({}, {0.5})}, {true, true, true, true}}};
}

inline std::vector<OneNode> layer_nodes() {
  const Array x = random_floats({6, 8}, 1), scale = random_floats({8}, 2), bias = random_floats({8}, 3),
              dy = random_floats({6, 8}, 4), residual = random_floats({6, 8}, 9);
  const OneNode layer{"LayerNormalization", {}, {x, scale, bias}, {true, true, true}};
  const OneNode root{"RMSNormalization", {}, {x, scale}, {true, true}};
  const Array statistic = random_floats({8}, 10), variance = random_floats({8}, 11, 0.5, 2);
  const OneNode batch{"BatchNorm", {}, {x, scale, bias, statistic, variance}, {true, true, true, true}};
  const std::vector<Array> of_layer = reference(layer), of_root = reference(root), of_batch = reference(batch);
  OneNode attention = forward({2, 3, 4, 2, 1, 8, 8}, form(0), 7);
  attention.inputs.push_back(random_floats({1, 2, 3, 4}, 8));
  const Attributes silu{{"activation", std::string("Silu")}};
  std::vector<OneNode> nodes = {
      layer,
      root,
      {"LayerNormalizationGrad", {}, {dy, x, scale, of_layer[1], of_layer[2], residual}, {true, true, true}},
      {"RMSNormalizationGrad", {}, {dy, x, scale, of_root[1], residual}, {true, true}},
      batch,
      {"BatchNormGrad", {}, {dy, x, scale, of_batch[1], of_batch[2]}, {true, true, true}},
      {"FoldStatistics", {}, {statistic, scale, bias}},
      {"AccumulateStatistics", {}, {scale, statistic, bias, scale}},
      attention,
      backward(attention, 9),
      rotary({{2, 3, 2, 8}, 4, true}, 0, 0),
      {"Gated", silu, {x, dy}},
      {"GatedGrad", silu, {dy, x, dy}, {true, true}},
      {"MatMul", {}, {x, random_floats({8, 3}, 5), random_floats({3}, 6)}},
      {"Dropout", {{"ratio", 0.5}, {"key", std::int64_t{7}}}, {x}, {true, true}},
      {"Uniform", {{"shape", Shape{6, 8}}, {"key", std::int64_t{7}}}, {}}};
  for (const char *name : {"Softmax", "LogSoftmax"}) {
    const OneNode softmax{name, {}, {x}};
    nodes.push_back(softmax);
    nodes.push_back({std::string(name) + "Grad", {}, {dy, reference(softmax)[0]}});
  }
  return nodes;
}

inline std::vector<OneNode> conv_nodes() {
  using Integers = std::vector<std::int64_t>;
  const Attributes windows{{"strides", Integers{1, 2}},
                           {"dilations", Integers{1, 1}},
                           {"pads", Integers{1, 1, 1, 1}},
                           {"group", std::int64_t{1}}};
  Attributes of_weights = windows;
  of_weights.set("kernel_shape", Integers{3, 3});
  const Array x = random_floats({2, 3, 4, 5}, 1), w = random_floats({4, 3, 3, 3}, 2),
              dy = random_floats({2, 4, 4, 3}, 3);
  return {{"Conv", windows, {x, w, random_floats({4}, 4)}},
          {"ConvTranspose", windows, {dy, w, random_floats({3}, 5)}},
          {"ConvWeightGrad", of_weights, {x, dy}}};
}

inline std::vector<OneNode> pool_nodes() {
  using Integers = std::vector<std::int64_t>;
  const Attributes windows{
      {"kernel_shape", Integers{3, 2}}, {"strides", Integers{1, 2}}, {"pads", Integers{1, 1, 1, 1}}};
  Attributes of_average = windows;
  of_average.set("shape", Shape{2, 3, 4, 5});
  const Array x = random_floats({2, 3, 4, 5}, 1), dy = random_floats({2, 3, 4, 3}, 2);
  return {{"MaxPool", windows, {x}, {true, true}},
          {"AveragePool", windows, {x}},
          {"MaxPoolGrad", windows, {dy, x}},
          {"AveragePoolGrad", of_average, {dy}}};
}

inline std::vector<OneNode> recurrent_nodes() {
  std::vector<OneNode> nodes;
  for (const char *op : {"LstmSteps", "GruSteps", "RnnSteps"}) {
    nodes.push_back(recurrent(op, {3, 2, 4}, {{"linear_before_reset", std::int64_t{1}}}, 1));
    nodes.push_back(recurrent_gradient(nodes.back(), 9));
  }
  return nodes;
}

inline std::vector<OneNode> movement_nodes() {
  using Integers = std::vector<std::int64_t>;
  const Array x = random_floats({4, 6}, 1), rows = random_integers({3}, 2, 0, 4),
              places = random_integers({3, 6}, 3, 0, 4);
  const Attributes slice{{"starts", Integers{1}}, {"ends", Integers{3}}, {"axes", Integers{0}}};
  Attributes of_slice = slice, of_gather{{"axis", std::int64_t{0}}, {"shape", Shape{4, 6}}};
  of_slice.set("shape", Shape{4, 6});
  std::vector<OneNode> nodes = {
      {"Cast", {{"to", std::string("int32")}}, {x}},
      {"Transpose", {{"perm", Integers{1, 0}}}, {x}},
      {"Slice", slice, {x}},
      {"SliceGrad", of_slice, {random_floats({2, 6}, 4)}},
      {"Concat", {{"axis", std::int64_t{0}}}, {x, x}},
      {"Split", {{"axis", std::int64_t{1}}, {"split", Integers{1, 2, 3}}}, {x}, {true, true, true}},
      {"Expand", {{"shape", Shape{2, 4, 6}}}, {x}},
      {"Pad", {{"pads", Integers{0, 1, 1, 0}}, {"value", 2.0}}, {x}},
      {"Trilu", {}, {x}},
      {"Gather", {{"axis", std::int64_t{0}}}, {x, rows}},
      {"GatherGrad", of_gather, {random_floats({3, 6}, 5), rows}},
      {"GatherElements", {{"axis", std::int64_t{0}}}, {x, places}},
      {"GatherElementsGrad", of_gather, {random_floats({3, 6}, 6), places}},
      {"CumSum", {}, {x}},
      {"ArgMax", {}, {x}},
      {"ArgMin", {}, {x}},
      {"TopK", {{"k", std::int64_t{2}}}, {x}, {true, true}},
  };
  for (const char *name : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"})
    nodes.push_back({name, {{"axes", Integers{1}}, {"keepdims", std::int64_t{1}}}, {x}});
  return nodes;
}

inline std::vector<OneNode> elementwise_nodes() {
  const Array x = random_floats({4, 6}, 1, 0.2, 0.9), y = random_floats({4, 1}, 2, 0.2, 0.9);
  std::vector<OneNode> nodes = {{"Where", {}, {truths({4, 6}, 3), x, y}}, {"Not", {}, {truths({4, 6}, 3)}}};
  for (const char *name :
       {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
    nodes.push_back({name, {}, {x, y}});
  for (const char *name : {"And", "Or", "Xor"}) nodes.push_back({name, {}, {truths({4, 6}, 4), truths({6}, 5)}});
  for (std::string_view name :
       kernel_names()) {  // the remaining ones are functions of one operand, and their gradients
    if (std::ranges::find(nodes, name, &OneNode::op) != nodes.end()) continue;
    const Array at = name.starts_with("Acosh") ? random_floats({4, 6}, 6, 1.2, 1.8) : x;
    const ops::Op *op = ops::find(name);
    if (name.ends_with("Grad") && ops::find(name.substr(0, name.size() - 4)) != nullptr)
      nodes.push_back({std::string(op->name), {}, {random_floats({4, 6}, 7), at}});
    else
      nodes.push_back({std::string(op->name), {}, {at}});
  }
  return nodes;
}

inline std::vector<OneNode> quantised_nodes() {
  const Array x = random_floats({4, 6}, 1), dy = random_floats({4, 6}, 2), scale = random_floats({6}, 3, 0.01, 0.02),
              q = random_integers({4, 6}, 4, -128, 128, DType::i8), zero = random_integers({6}, 5, -8, 8, DType::i8);
  const Attributes range{{"low", std::int64_t{-128}}, {"high", std::int64_t{127}}};
  return {{"DequantizeLinear", {}, {q, scale, zero}},
          {"FakeQuantize", range, {x, scale, zero}},
          {"FakeQuantizeGrad", range, {dy, x, scale, zero}}};
}

inline std::vector<OneNode> step_nodes() {
  const Array x = random_floats({4, 6}, 1);
  return {{"LossScale", {}, {}},
          {"SquaredNorm", {}, {x}},
          {"JoinSquares", {}, {Array::from_doubles({DType::f64, {5}}, {1, 2, 3, 4, 5})}},
          {"GlobalNorm", {}, {doubles(2), doubles(3)}},
          {"ScaledNorm", {}, {doubles(2), doubles(3)}},
          {"GradientScale", {{"max_norm", 1.0}}, {doubles(2), doubles(3)}},
          {"Accumulate", {}, {x, random_floats({4, 6}, 2), doubles(3)}},
          {"SumParts", {{"parts", 2}, {"shape", Shape{4, 6}}}, {random_floats({2, 4, 6}, 2), doubles(3)}},
          {"CountTargets", {}, {random_integers({6}, 5, 0, 5), random_floats({6}, 1, 0.5, 2)}},
          {"CountedLoss", {}, {floats({}, {0.5}), doubles(3)}}};
}

inline std::vector<OneNode> every_kernel() {
  std::vector<OneNode> nodes;
  for (const auto &family : {loss_nodes(), layer_nodes(), conv_nodes(), pool_nodes(), recurrent_nodes(),
                             movement_nodes(), quantised_nodes(), step_nodes()})
    nodes.insert(nodes.end(), family.begin(), family.end());
  for (const OneNode &node : elementwise_nodes())
    if (std::ranges::find(nodes, node.op, &OneNode::op) == nodes.end()) nodes.push_back(node);
  return nodes;
}

// Attention within packed documents, and its gradient. Both have an extra input: the number of the first key of each
// query's document. GPUs have no kernel for this form.
inline std::vector<OneNode> document_nodes() {
  OneNode attention = forward({2, 3, 3, 2, 1, 8, 8}, form(1), 7);
  attention.inputs.push_back(random_floats({1, 2, 3, 3}, 8));
  attention.inputs.push_back(Array::from_integers({DType::i64, {2, 3}}, {0, 0, 2, 0, 1, 1}));
  return {attention, backward(attention, 9)};
}

// Returns a copy of the node for each subset of its optional inputs, without the inputs in the subset. The first copy
// has all inputs. If inputs at the end are absent, there are two copies: one with empty inputs at the end, and one with
// a shorter list.
inline std::vector<OneNode> without_inputs(const OneNode &whole) {
  std::vector<std::size_t> optional;
  for (std::size_t i = 0; i < whole.inputs.size(); ++i)
    if (ops::find(whole.op)->may_lack(i)) optional.push_back(i);
  std::vector<OneNode> nodes;
  for (std::size_t set = 0; set < std::size_t{1} << optional.size(); ++set) {
    OneNode node = whole;
    for (std::size_t i = 0; i < optional.size(); ++i)
      if ((set >> i & 1) != 0) node.inputs[optional[i]] = Array();
    node.outputs.resize(types_of_all_outputs(node).size());  // some outputs need an input
    nodes.push_back(node);
    const bool ends_absent = !node.inputs.empty() && node.inputs.back().dtype() == DType::none;
    while (!node.inputs.empty() && node.inputs.back().dtype() == DType::none) node.inputs.pop_back();
    if (ends_absent) nodes.push_back(node);
  }
  return nodes;
}

// Returns a copy of the node for each subset of its outputs, without the outputs in the subset. Leaves out the empty
// subset and the full one.
inline std::vector<OneNode> without_outputs(const OneNode &whole) {
  std::vector<OneNode> nodes;
  const std::size_t count = whole.outputs.size();
  for (std::size_t set = 1; set + 1 < std::size_t{1} << count; ++set) {
    nodes.push_back(whole);
    for (std::size_t i = 0; i < count; ++i) nodes.back().outputs[i] = (set >> i & 1) == 0;
  }
  return nodes;
}

}  // namespace protrain::test
