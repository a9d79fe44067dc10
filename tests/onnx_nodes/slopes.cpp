#include "onnx_nodes/slopes.h"

#include <optional>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "grad/training.h"
#include "onnx_nodes/ways.h"
#include "ops/op.h"
#include "passes/hand_built.h"

namespace protrain::test {

namespace {

using graph::Node;
using graph::Type;
using Values = std::map<ValueId, Array>;

constexpr double kStep = 1e-5, kTolerance = 2e-6;  // the tolerance is relative to the larger of 1 and the slope
constexpr double kKink = 1e-3;                     // if the slopes on both sides differ by more, there is a kink
constexpr std::int64_t kMostElements = 5;          // elements of each input are checked

// Appends nodes to a typed graph.
class Appender {
 public:
  explicit Appender(Graph &graph) : graph_(graph) {}
  ValueId add(const std::string &op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    Node node{.op = op, .name = op, .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = {}};
    const Type type = ops::infer(graph_, node).at(0);
    const ValueId out = graph_.node(graph_.add_node(std::move(node), {"loss"})).outputs[0];
    graph_.value(out).type = type;
    return out;
  }

 private:
  Graph &graph_;
};

// Adds a loss: the weighted sum of all elements of the first `most_outputs` outputs. Leaves out constants and outputs
// that are not floats. Returns none if no output is left.
ValueId add_loss(Graph &graph, std::size_t most_outputs) {
  Appender appender(graph);
  ValueId loss = ValueId::none;
  const std::vector<ValueId> outputs = graph.outputs;
  for (std::size_t i = 0; i < std::min(most_outputs, outputs.size()); ++i) {
    const graph::Value value = graph.value(outputs[i]);
    if (!is_float(value.type.dtype) || value.origin == Origin::constant) continue;
    const ValueId weights = graph.add_constant("weights", some_values(value.type, i + 77));
    std::vector<std::int64_t> axes;
    for (std::size_t axis = 0; axis < value.type.shape.size(); ++axis) axes.push_back(static_cast<std::int64_t>(axis));
    ValueId sum = appender.add("Mul", {outputs[i], weights});
    if (!axes.empty()) sum = appender.add("ReduceSum", {sum}, {{"axes", axes}, {"keepdims", std::int64_t{0}}});
    loss = loss == ValueId::none ? sum : appender.add("Add", {loss, sum});
  }
  return loss;
}

// Compares the gradient of `input` with finite differences. Returns "" if they agree, else the first difference.
std::string compare(const Graph &graph, ValueId loss, Values at, ValueId input, const std::vector<double> &gradient) {
  const Array array = at.at(input);
  const std::vector<double> values = array.doubles();
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t stride = std::max<std::int64_t>(1, count / kMostElements);
  const double here = ops::interpret(graph, at)[index(loss)].doubles().at(0);
  for (std::int64_t n = 0; n < count; n += stride) {
    const auto i = static_cast<std::size_t>(n);
    const auto loss_at = [&](double offset) {
      std::vector<double> moved = values;
      moved[i] += offset;
      at[input] = Array::from_doubles(array.type(), moved);
      return ops::interpret(graph, at)[index(loss)].doubles().at(0);
    };
    const double right = (loss_at(kStep) - here) / kStep, left = (here - loss_at(-kStep)) / kStep;
    const double expected = (right + left) / 2;
    if (!(std::abs(right - left) <= kKink * std::max(1.0, std::abs(expected)))) continue;  // no slope here
    if (!(std::abs(gradient[i] - expected) <= kTolerance * std::max(1.0, std::abs(expected))))
      return fmt::format("gradient of {} at {}: {}, finite differences give {}", graph.value(input).name, i,
                         gradient[i], expected);
  }
  return "";
}

// The part of a case that is checked.
struct Part {
  std::size_t most_outputs;
  ValueId only = ValueId::none;  // the input to differentiate; none: all
};

Slope check(Bound bound, const Part &part, std::string &reason) {
  Graph &graph = bound.graph;
  for (ValueId in : graph.inputs) {
    if (!is_float(graph.value(in).type.dtype) || (part.only != ValueId::none && in != part.only)) continue;
    graph.value(in).origin = Origin::parameter;
    graph.parameters.push_back(in);
  }
  std::erase_if(graph.inputs, [&](ValueId id) { return graph.value(id).origin == Origin::parameter; });
  const ValueId loss = add_loss(graph, part.most_outputs);
  if (loss == ValueId::none || graph.parameters.empty()) return Slope::none;
  graph.outputs = {loss};
  const Graph forward = graph;
  std::optional<grad::Training> training;
  try {
    training = grad::build(std::move(graph), loss);
  } catch (const Error &error) {
    if (error.code != Code::graph) throw;  // Code::graph means that all gradients are zero
  }
  const std::vector<Array> values = training ? ops::interpret(training->graph, bound.values) : std::vector<Array>();
  bool any = false;
  for (std::size_t i = 0; i < forward.parameters.size(); ++i) {
    const ValueId input = forward.parameters[i], gradient = training ? training->gradients.at(i) : ValueId::none;
    any = any || gradient != ValueId::none;
    const std::vector<double> zeros(static_cast<std::size_t>(element_count(forward.value(input).type.shape)), 0.0);
    reason = compare(forward, loss, bound.values, input,
                     gradient == ValueId::none ? zeros : values[index(gradient)].doubles());
    if (!reason.empty()) return Slope::wrong;
  }
  return any ? Slope::checked : Slope::none;
}

}  // namespace

void widen(Bound &bound) {
  for (std::size_t i = 0; i < bound.graph.value_count(); ++i) {
    graph::Value &value = bound.graph.value(static_cast<ValueId>(i));
    if (value.type.dtype != DType::f32) continue;
    value.type.dtype = DType::f64;
    if (value.origin == Origin::constant) value.array = Array::from_doubles(value.type, value.array.doubles());
  }
  for (auto &[id, array] : bound.values)
    if (array.dtype() == DType::f32) array = Array::from_doubles({DType::f64, array.shape()}, array.doubles());
  std::vector<Node> nodes = bound.graph.nodes();
  for (Node &node : nodes)
    for (const char *key : {"to", "dtype"})
      if (node.attributes.has(key) && node.attributes.text(key, "") == "float32") node.attributes.set(key, "float64");
  bound.graph.set_nodes(std::move(nodes));
}

Slope check_slopes(const std::function<Bound()> &make, std::string &reason) {
  std::string refusal;
  const auto checked = [&](const Part &part) {
    try {
      return check(make(), part, reason);
    } catch (const Error &error) {
      if (error.code != Code::unsupported) throw;
      refusal = error.text;
      return Slope::refused;
    }
  };
  Slope slope = Slope::refused;
  // Checks the gradient of all outputs together. If that is refused, checks the first output alone, because further
  // outputs can be statistics, for which there is no gradient.
  for (std::size_t most_outputs : {std::size_t{64}, std::size_t{1}})
    if (slope == Slope::refused) slope = checked({.most_outputs = most_outputs});
  if (slope != Slope::refused) return slope;
  const Bound bound = make();
  std::string without;
  for (ValueId in : bound.graph.inputs) {
    if (!is_float(bound.graph.value(in).type.dtype)) continue;
    const Slope alone = checked({.most_outputs = 1, .only = in});
    if (alone == Slope::wrong) return alone;
    if (alone == Slope::checked) slope = alone;
    if (alone == Slope::refused) without += (without.empty() ? "" : ", ") + bound.graph.value(in).name;
  }
  reason = slope == Slope::checked ? without : refusal;
  return slope;
}

}  // namespace protrain::test
