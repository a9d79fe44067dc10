// Compares an operator's gradient rule with central differences, in float64. The loss is a sum of output elements, each
// times a fixed random weight.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/op.h"

namespace protrain::test {

using graph::Array;
using graph::Attributes;
using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::Type;
using graph::ValueId;

inline Array random_doubles(const Shape &shape, unsigned seed, double low = -1, double high = 1) {
  std::mt19937 bits(seed);
  std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
  for (double &value : values) value = low + (high - low) * (static_cast<double>(bits()) / 4294967296.0);
  return Array::from_doubles({DType::f64, shape}, values);
}

inline Array random_indices(const Shape &shape, unsigned seed, std::int64_t low, std::int64_t high) {  // in [low, high)
  std::mt19937 bits(seed);
  std::vector<std::int64_t> values(static_cast<std::size_t>(element_count(shape)));
  for (std::int64_t &value : values)
    value = low + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(high - low));
  return Array::from_integers({DType::i64, shape}, values);
}

// One node. An Array of dtype none is an absent input. Every float64 input is differentiated, except those in `fixed`.
struct GradientCase {
  std::string op;
  Attributes attributes;
  std::vector<Array> inputs;
  std::size_t outputs = 1;
  std::vector<std::size_t> weighted = {0};  // the outputs that count for the loss
  std::vector<std::size_t> fixed = {};      // inputs that need no gradient
  bool is_loss = false;                     // the one weighted output is the graph's loss itself
  double tolerance = 1e-6;                  // allowed |found - expected| / max(1, |expected|)
  double step = 1e-5;
};

// A graph of one node, which is also the GradientBuilder that the node's gradient rule calls.
class OneNodeGraph final : public ops::GradientBuilder {
 public:
  explicit OneNodeGraph(const GradientCase &given) : given_(given) {
    Node node{.op = given.op, .name = given.op, .attributes = given.attributes, .inputs = {}, .outputs = {}};
    for (std::size_t i = 0; i < given.inputs.size(); ++i) {
      const Array &array = given.inputs[i];
      if (array.dtype() == DType::none) {
        node.inputs.push_back(ValueId::none);
        continue;
      }
      const bool varies = array.dtype() == DType::f64 && std::ranges::count(given.fixed, i) == 0;
      ValueId id;
      if (varies) {
        id = graph.add_value({.name = "x", .type = array.type(), .origin = Origin::parameter});
        bound[id] = array;
      } else {
        id = graph.add_constant("c", array);
      }
      node.inputs.push_back(id);
    }
    graph.add_node(std::move(node), std::vector<std::string>(given.outputs, "y"));
    const std::vector<Type> types = ops::infer(graph, forward());
    for (std::size_t i = 0; i < given.outputs; ++i) graph.value(forward().outputs[i]).type = types.at(i);
    for (std::size_t i : given.weighted) {
      const Type type = this->type(forward().outputs.at(i));
      weights_[forward().outputs[i]] = given.is_loss ? Array::filled(type, 1) : random_doubles(type.shape, 99 + i);
    }
  }

  // Emits the gradient nodes. Returns the gradient of each input; ValueId::none for an input without one.
  std::vector<ValueId> differentiate() {
    for (const auto &[output, weights] : weights_) gradients_[output] = graph.add_constant("dy", weights);
    const Node node = forward();  // a copy, because emitting moves the node list
    ops::find(node.op)->gradient(*this, node);
    std::vector<ValueId> found;
    for (ValueId in : node.inputs) found.push_back(gradient_of(in));
    return found;
  }

  double loss(const std::map<ValueId, Array> &inputs) const {
    Graph only = graph;
    only.set_nodes({graph.nodes()[0]});
    const std::vector<Array> values = ops::interpret(only, inputs);
    double sum = 0;
    for (const auto &[output, weights] : weights_) {
      const std::vector<double> y = values[index(output)].doubles(), w = weights.doubles();
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * w[i];
    }
    return sum;
  }

  const Node &forward() const { return graph.nodes()[0]; }

  Graph graph;
  std::map<ValueId, Array> bound;
  ValueId replacement = ValueId::none;  // the value that replaces the loss, if the rule asks for that

 private:
  ValueId gradient_of(ValueId output) override {
    const auto found = gradients_.find(output);
    return found == gradients_.end() ? ValueId::none : found->second;
  }
  bool wants(ValueId input) const override { return bound.contains(input); }
  std::string trained_before(ValueId input) const override { return value(input).name; }
  void contribute(ValueId input, ValueId gradient) override {
    ASSERT_TRUE(wants(input)) << given_.op << " contributes to an input that wants no gradient";
    ASSERT_EQ(type(gradient), type(input)) << given_.op;
    const auto [sum, is_first] = gradients_.emplace(input, gradient);
    if (!is_first) sum->second = GradientBuilder::emit("Add", {sum->second, gradient});
  }
  std::vector<ValueId> emit(const std::string &op, std::vector<ValueId> inputs, Attributes attributes,
                            std::size_t output_count) override {
    Node node{.op = op, .name = op, .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = {}};
    const std::vector<Type> types = ops::infer(graph, node);
    const graph::NodeId id = graph.add_node(std::move(node), std::vector<std::string>(output_count, "d"));
    const std::vector<ValueId> outputs = graph.node(id).outputs;
    for (std::size_t i = 0; i < output_count; ++i) graph.value(outputs[i]).type = types.at(i);
    return outputs;
  }
  ValueId constant(Type type, double value) override {
    return graph.add_constant("constant", Array::filled(std::move(type), value));
  }
  const Type &type(ValueId id) const override { return graph.value(id).type; }
  const graph::Value &value(ValueId id) const override { return graph.value(id); }
  bool is_loss(ValueId output) const override { return given_.is_loss && weights_.contains(output); }
  void replace_output(ValueId, ValueId by) override { replacement = by; }

  const GradientCase given_;
  std::map<ValueId, Array> weights_;  // dL/d(output)
  std::map<ValueId, ValueId> gradients_;
};

inline void expect_gradient(const GradientCase &given) {
  SCOPED_TRACE(given.op + " {" + given.attributes.print() + "}");
  OneNodeGraph one(given);
  const std::vector<ValueId> gradients = one.differentiate();
  const std::vector<Array> values = ops::interpret(one.graph, one.bound);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const ValueId in = one.forward().inputs[i];
    if (!one.bound.contains(in)) continue;
    ASSERT_NE(gradients[i], ValueId::none) << "input " << i << " was given no gradient";
    const std::vector<double> found = values[index(gradients[i])].doubles(), at = one.bound.at(in).doubles();
    auto moved = one.bound;
    for (std::size_t element = 0; element < at.size(); ++element) {
      const auto loss_at = [&](double offset) {
        std::vector<double> shifted = at;
        shifted[element] += offset;
        moved[in] = Array::from_doubles(one.bound.at(in).type(), shifted);
        return one.loss(moved);
      };
      const double step = given.step * std::max(1.0, std::abs(at[element]));
      const double expected = (loss_at(step) - loss_at(-step)) / (2 * step);
      const double error = std::abs(found[element] - expected) / std::max(1.0, std::abs(expected));
      EXPECT_LE(error, given.tolerance) << "input " << i << " " << to_text(one.bound.at(in).shape()) << " element "
                                        << element << ": found " << found[element] << ", expected " << expected;
    }
  }
  if (one.replacement != ValueId::none) {
    EXPECT_NEAR(values[index(one.replacement)].doubles().at(0), one.loss(one.bound), 1e-9) << "the replaced loss";
  }
}

// Evaluates one operator on the given inputs and returns its outputs.
inline std::vector<Array> evaluate(const std::string &op, const Attributes &attributes,
                                   const std::vector<Array> &inputs, std::size_t outputs = 1) {
  Graph graph;
  Node node{.op = op, .name = op, .attributes = attributes, .inputs = {}, .outputs = {}};
  for (const Array &input : inputs)
    node.inputs.push_back(input.dtype() == DType::none ? ValueId::none : graph.add_constant("x", input));
  graph.add_node(std::move(node), std::vector<std::string>(outputs, "y"));
  const std::vector<Array> values = ops::interpret(graph, {});
  std::vector<Array> results;
  for (ValueId out : graph.nodes()[0].outputs) results.push_back(values[index(out)]);
  return results;
}

// The code of the Error that `call` throws; Code::ok if it throws none.
template <typename Call>
Code code_of(Call call) {
  try {
    call();
  } catch (const Error &error) {
    return error.code;
  }
  return Code::ok;
}

}  // namespace protrain::test
