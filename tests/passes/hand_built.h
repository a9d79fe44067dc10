// Builds small graphs by hand and infers their types. Also compares the outputs of two graphs in float64, to show that
// a pass has not changed them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/op.h"

namespace protrain::test {

using graph::Array;
using graph::Attributes;
using graph::Graph;
using graph::Origin;
using graph::ValueId;
using Integers = std::vector<std::int64_t>;

class HandBuilt {
 public:
  ValueId input(const std::string &name, Shape shape, DType dtype = DType::f64) {
    const ValueId id = add_value(name, Origin::input, {dtype, std::move(shape)});
    graph.inputs.push_back(id);
    return id;
  }
  ValueId parameter(const std::string &name, Shape shape) {
    const ValueId id = add_value(name, Origin::parameter, {DType::f64, std::move(shape)});
    graph.parameters.push_back(id);
    return id;
  }
  ValueId initializer(const std::string &name, Shape shape, DType dtype = DType::f64) {
    return add_value(name, Origin::initializer, {dtype, std::move(shape)});
  }
  ValueId constant(Array array) { return graph.add_constant("constant", std::move(array)); }
  ValueId number(double value, DType dtype = DType::f64) { return constant(Array::scalar(dtype, value)); }
  ValueId integers(const Integers &values) { return constant(Array::integers(values)); }

  std::vector<ValueId> add_all(const std::string &op, std::vector<ValueId> inputs, Attributes attributes,
                               std::size_t outputs) {
    graph::Node node;
    node.op = op;
    node.name = "/" + op;
    node.attributes = std::move(attributes);
    node.inputs = std::move(inputs);
    const graph::NodeId id = graph.add_node(node, std::vector<std::string>(outputs, op + "_out"));
    const std::vector<ValueId> made = graph.node(id).outputs;
    for (ValueId in : graph.node(id).inputs)
      if (in != ValueId::none && graph.value(in).type.dtype == DType::none)
        return made;  // an unknown operator's result has no type
    if (ops::find(op) == nullptr) return made;
    const std::vector<graph::Type> types = ops::infer(graph, graph.node(id));
    for (std::size_t i = 0; i < made.size(); ++i) graph.value(made[i]).type = types.at(i);
    return made;
  }
  ValueId add(const std::string &op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return add_all(op, std::move(inputs), std::move(attributes), 1)[0];
  }
  ValueId transpose(ValueId x, const Integers &perm) { return add("Transpose", {x}, {{"perm", perm}}); }
  ValueId reshape(ValueId x, const Integers &shape) { return add("Reshape", {x}, {{"shape", shape}}); }
  ValueId slice(ValueId x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
    return add(
        "Slice", {x},
        {{"starts", Integers{begin}}, {"ends", Integers{end}}, {"axes", Integers{axis}}, {"steps", Integers{1}}});
  }

  Graph graph;

 private:
  ValueId add_value(const std::string &name, Origin origin, graph::Type type) {
    graph::Value value;
    value.name = name;
    value.type = std::move(type);
    value.origin = origin;
    return graph.add_value(std::move(value));
  }
};

// An array of numbers that depend only on the seed: floats in [-1, 1), integers from 0 to 3.
inline Array some_values(const graph::Type &type, std::uint64_t seed) {
  std::vector<double> values;
  std::uint64_t state = seed * 2862933555777941757ULL + 3037000493ULL;
  for (std::int64_t i = 0; i < element_count(type.shape); ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double unit = static_cast<double>(state >> 11) / 9007199254740992.0;
    values.push_back(is_float(type.dtype) ? 2 * unit - 1 : std::floor(4 * unit));
  }
  return Array::from_doubles(type, values);
}

inline std::vector<std::vector<double>> results(const Graph &graph) {
  std::map<ValueId, Array> bound;
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const graph::Value &value = graph.values()[i];
    if (value.origin == Origin::input || value.origin == Origin::parameter || value.origin == Origin::initializer)
      bound.emplace(static_cast<ValueId>(i), some_values(value.type, i + 1));
  }
  const std::vector<Array> arrays = ops::interpret(graph, bound);
  std::vector<std::vector<double>> outputs;
  for (ValueId out : graph.outputs) {
    const Array &constant = graph.value(out).array;
    outputs.push_back(graph.value(out).origin == Origin::constant ? constant.doubles()
                                                                  : arrays.at(index(out)).doubles());
  }
  return outputs;
}

inline void expect_same_results(const Graph &before, const Graph &after) {
  const auto wanted = results(before), found = results(after);
  ASSERT_EQ(wanted.size(), found.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ASSERT_EQ(wanted[i].size(), found[i].size()) << after.print();
    for (std::size_t j = 0; j < wanted[i].size(); ++j)
      ASSERT_NEAR(wanted[i][j], found[i][j], 1e-9 * std::max(1.0, std::abs(wanted[i][j]))) << after.print();
  }
}

inline std::map<std::string, int> histogram(const Graph &graph) {
  std::map<std::string, int> counts;
  for (const graph::Node &node : graph.nodes()) ++counts[node.op];
  return counts;
}

inline const graph::Node &only(const Graph &graph, std::string_view op) {
  const graph::Node *found = nullptr;
  for (const graph::Node &node : graph.nodes())
    if (node.op == op) found = &node;
  if (found == nullptr) throw std::runtime_error(fmt::format("no {} in:\n{}", op, graph.print()));
  return *found;
}

}  // namespace protrain::test
