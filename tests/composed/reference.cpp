#include "composed/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "composed/dice.h"

namespace protrain::test {

namespace {
using graph::Array;
using graph::Node;
using graph::ValueId;

// Returns the sorted magnitudes of all numbers in the operands, and also 0 and 1. A result with one of these magnitudes
// is taken for an exact copy of a number, so no noise is added to this result.
std::vector<double> magnitudes(const std::vector<const Array *> &inputs) {
  std::vector<double> all = {0, 1};
  for (const Array *input : inputs)
    if (input != nullptr && is_float(input->dtype()))
      for (std::int64_t i = 0; i < input->stored_count(); ++i) all.push_back(std::fabs(input->stored_double(i)));
  std::ranges::sort(all);
  return all;
}

// True if the operator adds up numbers. The kernels of such an operator round partial sums, so even a result that
// equals an operand (such as the mean of equal numbers) is not exact. `first` is the first operand, `result` the type
// of the first output.
bool adds_up(const Node &node, const Array *first, const graph::Type &result) {
  for (const char *begin : {"MatMul", "FusedAttention", "LayerNormalization", "RMSNormalization"})
    if (node.op.starts_with(begin)) return true;
  const bool sums = node.op == "ReduceMean" || node.op == "ReduceSum";
  return sums && element_count(first->shape()) > element_count(result.shape);
}

// The factor by which an operator's rounding errors exceed those of others: 1, except for Softmax. For Softmax it is
// the size of the largest finite score, but at least 1. Attention's backward kernel recomputes a probability as
// exp(score - L), where L is the log of the sum of all exp(score). Rounding changes score and L in proportion to their
// size, and the probability changes with them.
double coarseness(const Node &node, const Array *first) {
  if (node.op != "Softmax") return 1;
  double most = 1;
  for (const double value : first->doubles())
    if (std::isfinite(value)) most = std::max(most, std::fabs(value));
  return most;
}

Array disturbed(const Array &array, const std::vector<double> &copied, double noise, Dice &dice) {
  std::vector<double> values = array.doubles();
  for (double &value : values)
    if (!std::ranges::binary_search(copied, std::fabs(value))) value *= 1 + noise * dice.real(-1, 1);
  return Array::from_doubles(array.type(), values);
}

// Collects Branches. add() takes the signed distance of a number from a kink, and the number's size. It records on
// which side of the kink the number is, and updates the smallest distance relative to the size.
struct Notes {
  Reference::Branches &branches;
  void add(double distance, double size) {
    branches.sides.push_back(distance > 0 ? 1 : distance < 0 ? -1 : 0);
    if (distance != 0) branches.margin = std::min(branches.margin, std::fabs(distance) / (1e-3 + std::fabs(size)));
    if (std::isnan(distance)) branches.margin = 0;
  }
};

// The numbers at which an operator of one operand has kinks.
std::vector<double> kinks(const Node &node) {
  const graph::Attributes &a = node.attributes;
  if (node.op == "Clip") return {a.real("min", -INFINITY), a.real("max", INFINITY)};
  if (node.op == "ThresholdedRelu") return {a.real("alpha", 1)};
  if (node.op == "HardSwish") return {-3, 3};
  if (node.op == "HardSigmoid") {
    const double alpha = a.real("alpha", 0.2), beta = a.real("beta", 0.5);
    return {-beta / alpha, (1 - beta) / alpha};
  }
  for (const char *op : {"Abs", "Relu", "LeakyRelu", "Elu", "Celu", "Selu", "Sign"})
    if (node.op == op) return {0};
  if (node.op == "Gated" && a.text("activation", "") == "Relu") return {0};
  return {};
}

// The signed distance of x from the nearest jump of Floor, Ceil, Round, or a Cast to integers.
double distance_to_jump(const Node &node, double x) {
  const double shifted = node.op == "Round" ? x - 0.5 : x;
  return shifted - std::nearbyint(shifted);
}

bool jumps(const Node &node, const Array &x, const graph::Graph &graph) {
  if (node.op == "Cast") return is_float(x.dtype()) && !is_float(graph.value(node.outputs[0]).type.dtype);
  return node.op == "Floor" || node.op == "Ceil" || node.op == "Round";
}

bool compares(const std::string &op) {
  for (const char *name : {"Max", "Min", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
    if (op == name) return true;
  return false;
}

void note_pairs(const Node &, const Array &a, const Array &b, Notes &notes) {
  const Shape shape = broadcast(a.shape(), b.shape(), "");
  const std::vector<double> x = a.expanded(shape).doubles(), y = b.expanded(shape).doubles();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (std::isfinite(x[i]) && std::isfinite(y[i])) notes.add(x[i] - y[i], x[i]);
}

// Records the branches of an operator that finds the largest or smallest elements along some axes: for each pair of
// elements that it compares, which one is larger.
void note_order(const Node &node, const Array &x, Notes &notes) {
  const std::size_t rank = x.shape().size();
  std::vector<bool> among(rank, false);
  const auto axes = node.attributes.integers("axes");
  if (node.op.starts_with("Reduce")) {
    for (std::int64_t axis : axes) among[resolve_axis(axis, rank, "")] = true;
    if (axes.empty()) among.assign(rank, true);
  } else {
    among[resolve_axis(node.attributes.integer("axis", node.op == "TopK" ? -1 : 0), rank, "")] = true;
  }
  const std::vector<std::int64_t> strides = row_major_strides(x.shape());
  const std::vector<double> values = x.doubles();
  std::map<std::int64_t, std::vector<double>> lanes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::int64_t lane = 0;
    for (std::size_t axis = 0; axis < rank; ++axis)
      if (!among[axis]) lane += static_cast<std::int64_t>(i) / strides[axis] % x.shape()[axis] * strides[axis];
    lanes[lane].push_back(values[i]);
  }
  for (const auto &[lane, list] : lanes)
    for (std::size_t i = 0; i < list.size(); ++i)
      for (std::size_t j = i + 1; j < list.size(); ++j)
        if (std::isfinite(list[i]) && std::isfinite(list[j])) notes.add(list[i] - list[j], list[i]);
}

void note(const graph::Graph &graph, const Node &node, const Values &values, Notes &notes) {
  if (node.inputs.empty() || node.inputs[0] == ValueId::none) return;
  const Array &x = values[index(node.inputs[0])];
  for (double kink : kinks(node))
    if (std::isfinite(kink) && is_float(x.dtype()))
      for (double value : x.doubles()) notes.add(value - kink, std::max(std::fabs(kink), std::fabs(value)));
  if (jumps(node, x, graph))
    for (double value : x.doubles()) {
      notes.add(distance_to_jump(node, value), 1);
      notes.branches.sides.push_back(static_cast<signed char>(std::floor(value)));
    }
  if (compares(node.op) && is_float(x.dtype())) note_pairs(node, x, values[index(node.inputs[1])], notes);
  for (const char *op : {"ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "TopK"})
    if (node.op == op && is_float(x.dtype())) note_order(node, x, notes);
}
}  // namespace

Reference::Reference(graph::Graph graph) : graph_(std::move(graph)) {
  for (const Node &node : graph_.nodes()) {
    const ops::Op *op = ops::find(node.op);
    require(op != nullptr && op->evaluate != nullptr, Code::unsupported, node.name, "{} has no reference", node.op);
    ops_.push_back(op);
    types_.push_back(ops::infer(graph_, node));
  }
}

Values Reference::run(const Data &data, double noise, std::uint64_t seed) const {
  Dice dice(seed);
  Values values(graph_.value_count());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (const graph::Value &value = graph_.values()[i]; value.origin == graph::Origin::constant)
      values[i] = value.array;
  for (const auto &[id, array] : data) values.at(index(id)) = array;
  for (std::size_t n = 0; n < graph_.node_count(); ++n) {
    const Node &node = graph_.nodes()[n];
    std::vector<const Array *> inputs;
    for (ValueId in : node.inputs) inputs.push_back(in == ValueId::none ? nullptr : &values[index(in)]);
    // A rounded sum equals the exact sum of slightly changed terms, so the noise is added to the terms. If the terms
    // cancel, the result is mostly noise, as it is in a kernel.
    const Array *first = inputs.empty() ? nullptr : inputs[0];
    const bool sums = noise > 0 && adds_up(node, first, types_[n].at(0));
    Array shaken;
    if (sums && is_float(first->dtype())) {
      shaken = disturbed(*first, {}, noise, dice);
      inputs[0] = &shaken;
    }
    std::vector<Array> results = ops_[n]->evaluate(node, inputs, types_[n]);
    if (noise == 0) {
      for (std::size_t i = 0; i < node.outputs.size(); ++i)
        if (node.outputs[i] != ValueId::none) values[index(node.outputs[i])] = std::move(results.at(i));
      continue;
    }
    const std::vector<double> copied = sums ? std::vector<double>() : magnitudes(inputs);
    const double off = noise * coarseness(node, first);
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == ValueId::none) continue;
      Array &result = results.at(i);
      values[index(node.outputs[i])] =
          is_float(result.dtype()) ? disturbed(result, copied, off, dice) : std::move(result);
    }
  }
  return values;
}

Reference::Branches Reference::branches(const Values &values) const {
  Branches found;
  Notes notes{found};
  for (const Node &node : graph_.nodes()) note(graph_, node, values, notes);
  return found;
}

}  // namespace protrain::test
