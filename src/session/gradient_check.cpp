#include "session/gradient_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "arith/random.h"
#include "base/error.h"
#include "base/shape.h"
#include "grad/training.h"
#include "ops/op.h"

namespace protrain::session {

namespace {

using graph::Array;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::ValueId;

Array widened(const Array &array) {
  return is_float(array.dtype()) ? Array::from_doubles({DType::f64, array.shape()}, array.doubles()) : array;
}

// Returns the part of a training graph that computes the loss, with constants and casts in float64.
Graph loss_in_float64(const grad::Training &training) {
  Graph graph = training.graph;
  graph.outputs = {training.loss};
  graph.drop_dead_nodes();
  grad::prune_unread_outputs(graph);
  std::set<std::string> missing;
  for (std::size_t i = 0; i < graph.node_count(); ++i) {
    Node &node = graph.node(static_cast<NodeId>(i));
    if (ops::find(node.op)->evaluate == nullptr) missing.insert(node.op);
    if (node.op == "Cast" && is_float(graph.value(node.outputs[0]).type.dtype))
      node.attributes.set("to", std::string(name_of(DType::f64)));
  }
  require(missing.empty(), Code::unsupported, missing.empty() ? "" : *missing.begin(),
          "the loss depends on {}, for which there is no arithmetic in float64 to compare gradients with; for this "
          "check export the model without such operators",
          fmt::join(missing, ", "));
  for (std::size_t i = 0; i < graph.value_count(); ++i)
    if (graph::Value &value = graph.value(static_cast<ValueId>(i)); value.origin == graph::Origin::constant)
      value.array = widened(value.array);
  return graph;
}

// Returns a number between 0 and `below` - 1 that looks random and depends only on the arguments.
std::size_t draw(std::size_t number, std::size_t below) {
  return static_cast<std::size_t>(arith::scrambled((number + 1) * 0x9E3779B97F4A7C15u) % below);
}

double norm_of(const std::vector<double> &values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

// Returns the positions of elements to compare: `first`, and up to `samples` - 1 others that are drawn at random.
// Returns all positions if there are at most `samples` elements.
std::set<std::size_t> sample(std::size_t first, std::size_t samples, std::size_t elements) {
  std::set<std::size_t> drawn = {first};
  for (std::size_t s = 1; s < std::min(samples, elements); ++s)
    drawn.insert(samples < elements ? draw(s, elements) : (first + s) % elements);
  return drawn;
}

}  // namespace

double root_mean_square(const std::vector<double> &gradient) {
  return norm_of(gradient) / std::sqrt(static_cast<double>(gradient.size()));
}

// The part of the graph that depends on one parameter, and the values that this part reads from the rest of the graph.
struct GradientCheck::Behind {
  Graph graph;
  std::map<ValueId, Array> bound;
};

GradientCheck::GradientCheck(const grad::Training &training, const std::map<ValueId, Array> &values,
                             const std::atomic<bool> &cancelled)
    : graph_(loss_in_float64(training)), loss_id_(training.loss), cancelled_(cancelled) {
  std::map<ValueId, Array> bound;
  for (const auto &[id, array] : values) bound[id] = widened(array);
  values_ = ops::interpret(graph_, bound);
  loss_ = values_[index(loss_id_)].stored_double(0);
}

GradientCheck::Behind GradientCheck::behind(ValueId parameter) const {
  std::vector<bool> depends(graph_.value_count(), false);
  depends[index(parameter)] = true;
  std::vector<Node> nodes;
  for (const Node &node : graph_.nodes()) {
    if (std::ranges::none_of(node.inputs, [&](ValueId in) { return in != ValueId::none && depends[index(in)]; }))
      continue;
    if (ops::is_flat(node)) continue;  // no gradient passes it, so its outputs keep the step's values
    nodes.push_back(node);
    for (ValueId out : node.outputs)
      if (out != ValueId::none) depends[index(out)] = true;
  }
  Behind behind{graph_, {}};
  behind.graph.set_nodes(std::move(nodes));
  for (std::size_t v = 0; v < values_.size(); ++v)
    if (!depends[v] && values_[v].dtype() != DType::none) behind.bound[static_cast<ValueId>(v)] = values_[v];
  return behind;
}

// Marks the elements of an embedding table that have no gradient by definition: those in the row padding_idx.
std::vector<bool> GradientCheck::padding_of(ValueId parameter) const {
  const Shape &shape = values_[index(parameter)].shape();
  std::vector<bool> padding(static_cast<std::size_t>(element_count(shape)), false);
  for (const Node &node : graph_.nodes()) {
    if (node.op != "Gather" || node.inputs[0] != parameter || !node.attributes.has("padding_idx")) continue;
    const std::int64_t row = node.attributes.integer("padding_idx", 0);
    const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), shape.size(), node.name);
    const auto stride = static_cast<std::size_t>(row_major_strides(shape)[axis]);
    for (std::size_t i = 0; i < padding.size(); ++i)
      if (static_cast<std::int64_t>(i / stride) % shape[axis] == row) padding[i] = true;
  }
  return padding;
}

double GradientCheck::loss_at(Behind &behind, ValueId parameter, const std::vector<double> &values) const {
  behind.bound[parameter] = Array::from_doubles(values_[index(parameter)].type(), values);
  return ops::interpret(behind.graph, behind.bound)[index(loss_id_)].stored_double(0);
}

// Returns the derivative of the loss along `direction`, from finite differences. Computes it twice, the second time
// over half the distance. If the two results differ, the loss is not smooth there, for example at the kink of a Relu.
GradientCheck::Slope GradientCheck::slope(Behind &behind, ValueId parameter,
                                          const std::vector<double> &direction) const {
  constexpr double kStep = 1e-5, kAlike = 1e-3;
  require(!cancelled_, Code::cancelled, "", "cancelled before all gradients were compared");
  const std::vector<double> values = values_[index(parameter)].doubles();
  double slopes[2];
  for (int halves = 0; halves < 2; ++halves) {
    const double distance = kStep / (1 + halves);
    std::vector<double> above = values, below = values;
    for (std::size_t i = 0; i < values.size(); ++i) {
      above[i] += distance * direction[i];
      below[i] -= distance * direction[i];
    }
    slopes[halves] = (loss_at(behind, parameter, above) - loss_at(behind, parameter, below)) / (2 * distance);
  }
  const double size = std::max(std::abs(slopes[0]), std::abs(slopes[1]));
  const double noise = 1e-15 * std::max(1.0, std::abs(loss_)) / kStep;  // rounding error of a slope
  return {slopes[1], std::abs(slopes[0] - slopes[1]) <= kAlike * size + 10 * noise};
}

GradientCheck::Result GradientCheck::compare(ValueId parameter, const std::vector<double> &gradient,
                                             std::size_t samples, const Small &small) const {
  Behind behind = this->behind(parameter);
  Result result{.norm = norm_of(gradient)};
  const auto by_size = [](double a, double b) { return std::abs(a) < std::abs(b); };
  const auto largest_at = static_cast<std::size_t>(std::ranges::max_element(gradient, by_size) - gradient.begin());
  const std::vector<bool> padding = padding_of(parameter);
  std::set<std::size_t> elements = sample(largest_at, samples, gradient.size());
  std::erase_if(elements, [&](std::size_t element) { return padding[element]; });
  std::vector<double> direction(gradient.size());
  double along = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    if (padding[i]) continue;
    direction[i] = draw(i, 2) == 0 ? 1 : -1;
    along += direction[i] * gradient[i];
  }
  const Slope whole = slope(behind, parameter, direction);
  double largest = std::abs(whole.value);
  std::vector<std::pair<double, double>> compared;  // an element of the gradient, and the slope along it
  for (const std::size_t element : elements) {
    std::ranges::fill(direction, 0);
    direction[element] = 1;
    const Slope found = slope(behind, parameter, direction);
    largest = std::max(largest, std::abs(found.value));
    if (found.smooth) compared.emplace_back(gradient[element], found.value);
  }
  result.elements = compared.size();
  result.kinks = elements.size() - compared.size();
  const double usual = std::max({root_mean_square(gradient), largest <= small.slope ? small.size : 0, 1e-12});
  for (const auto &[found, slope] : compared)
    result.worst_element = std::max(result.worst_element, std::abs(found - slope) / std::max(std::abs(slope), usual));
  const double size = std::max(std::abs(whole.value), usual * std::sqrt(static_cast<double>(gradient.size())));
  if (whole.smooth) result.direction = std::abs(along - whole.value) / size;
  return result;
}

}  // namespace protrain::session
