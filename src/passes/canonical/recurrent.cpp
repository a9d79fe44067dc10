// Rules for ONNX's LSTM, GRU and RNN. For each direction, a MatMul multiplies the inputs of all steps by the weights W.
// An operator of ops/recurrent.cpp then goes from step to step with the recurrence weights R. So the product over all
// steps has the kernels and gradients of any other MatMul. Transposes, Splits and Concats express layouts and
// directions.
#include "ops/recurrent.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

// A kind of recurrent layer: its operator in the file, and the core operator that goes from step to step.
struct LayerKind {
  std::string_view op;
  const char *core_op;
  std::size_t activations;  // of one direction
  std::size_t results;      // of the core operator
};
constexpr LayerKind kLayerKinds[] = {{"LSTM", "LstmSteps", 3, 3}, {"GRU", "GruSteps", 2, 2}, {"RNN", "RnnSteps", 1, 1}};

const LayerKind &kind_of(const Node &node) { return *std::ranges::find(kLayerKinds, node.op, &LayerKind::op); }

// The sizes, flags and inputs of a node that the rule needs. x is (S, B, I).
struct Layer {
  std::int64_t steps, batch, gates, units, directions;
  bool reverse, batch_first, resets_product;
  ValueId x = ValueId::none, lengths = ValueId::none;
};

std::vector<std::string> activation_names(const Node &node, std::size_t count) {
  const std::string list = node.attributes.text("activations", "");
  std::vector<std::string> names;
  for (std::size_t at = 0; !list.empty() && at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  require(names.empty() || names.size() == count, Code::graph, node.name, "{} has {} activations, expected {}", node.op,
          names.size(), count);
  return names;
}

// Returns the attributes of each direction's operator. The lists activation_alpha and activation_beta have entries only
// for activations that use such a coefficient, in the order of the activations.
std::vector<Attributes> attributes_of(const Node &node, const Layer &layer) {
  const std::size_t each = kind_of(node).activations;
  const auto directions = static_cast<std::size_t>(layer.directions);
  const std::vector<std::string> names = activation_names(node, each * directions);
  const std::vector<double> alphas = node.attributes.reals("activation_alpha"),
                            betas = node.attributes.reals("activation_beta");
  std::size_t alpha = 0, beta = 0;
  std::vector<Attributes> made(directions);
  for (std::size_t d = 0; d < directions; ++d) {
    Attributes &attributes = made[d];
    if (layer.reverse || d == 1) attributes.set("reverse", std::int64_t{1});
    if (node.attributes.has("clip")) attributes.set("clip", node.attributes.real("clip", 0));
    for (const char *flag : {"linear_before_reset", "input_forget"})
      if (node.attributes.integer(flag, 0) != 0) attributes.set(flag, std::int64_t{1});
    for (std::size_t i = 0; i < (names.empty() ? 0 : each); ++i) {
      const std::string &name = names[d * each + i], key(1, "fgh"[i]);
      const ops::RecurrentActivation *row = ops::find_recurrent_activation(name);
      require(row != nullptr, Code::unsupported, node.name, "the activation \"{}\" is unknown", printable(name));
      const double scale = row->scaled && alpha < alphas.size() ? alphas[alpha++] : row->alpha;
      const double shift = row->shifted && beta < betas.size() ? betas[beta++] : row->beta;
      require(!std::isnan(scale) && !std::isnan(shift), Code::graph, node.name,
              "the activation {} needs its alpha and beta", name);
      require(scale >= 0 || name == "Affine" || name == "ScaledTanh", Code::unsupported, node.name,
              "the activation {} with alpha {}; only alphas from 0 on have a gradient here", name, scale);
      attributes.set(key, name);
      if (row->scaled) attributes.set(key + "_alpha", scale);
      if (row->shifted) attributes.set(key + "_beta", shift);
    }
  }
  return made;
}

bool all_zero(const Canonical &c, ValueId id) {
  const graph::Array *array = c.constant_of(id);
  if (array == nullptr || !is_float(array->dtype())) return false;
  const std::vector<double> values = array->compact().doubles();
  return std::ranges::all_of(values, [](double v) { return v == 0; });
}

// True if the lengths are known and no sample is shorter than `steps`, the length of the sequence.
bool are_whole(const Canonical &c, ValueId lengths, std::int64_t steps) {
  const graph::Array *array = c.constant_of(lengths);
  if (array == nullptr) return false;
  return std::ranges::all_of(array->integers(), [&](std::int64_t length) { return length >= steps; });
}

Layer layer_of(Canonical &c, const Node &node) {
  c.infer(node);  // checks the shapes
  Layer layer{};
  layer.batch_first = node.attributes.integer("layout", 0) != 0;
  layer.x = layer.batch_first ? c.transpose(node.inputs.at(0), {1, 0, 2}) : node.inputs.at(0);
  const Shape x = c.shape(layer.x), r = c.shape(node.inputs.at(2));
  layer.steps = x[0];
  layer.batch = x[1];
  layer.directions = r[0];
  layer.units = r[2];
  require(layer.steps > 0 && layer.units > 0, Code::shape, node.name, "{} of {} steps with {} units", node.op,
          layer.steps, layer.units);
  layer.gates = r[1] / layer.units;
  layer.reverse = node.attributes.text("direction", "forward") == "reverse";
  layer.resets_product = node.op == "GRU" && node.attributes.integer("linear_before_reset", 0) != 0;
  if (has(node, 4) && !are_whole(c, node.inputs[4], layer.steps)) layer.lengths = node.inputs[4];
  return layer;
}

// Splits an operand along `axis`, the axis of directions. Returns the part of each direction without that axis.
std::vector<ValueId> by_direction(Canonical &c, ValueId x, std::int64_t axis) {
  Shape shape = c.shape(x);
  const std::int64_t count = shape[static_cast<std::size_t>(axis)];
  shape.erase(shape.begin() + axis);
  std::vector<ValueId> parts = {x};
  if (count > 1)
    parts = c.add_all("Split", {x}, {{"axis", axis}, {"split", Integers(static_cast<std::size_t>(count), 1)}},
                      static_cast<std::size_t>(count));
  for (ValueId &part : parts) part = c.reshape(part, shape);
  return parts;
}

// Returns an optional operand, split into the part of each direction. The parts are ValueId::none if the operand is
// absent.
std::vector<ValueId> optional_by_direction(Canonical &c, const Node &node, std::size_t input, const Layer &layer) {
  if (!has(node, input)) return std::vector<ValueId>(static_cast<std::size_t>(layer.directions), ValueId::none);
  return by_direction(c, node.inputs[input], 0);
}

// Returns the states before the first step, (B, H) for each direction. ValueId::none stands for states of zeros.
std::vector<ValueId> first_states(Canonical &c, const Node &node, std::size_t input, const Layer &layer) {
  if (!has(node, input) || all_zero(c, node.inputs[input]))
    return std::vector<ValueId>(static_cast<std::size_t>(layer.directions), ValueId::none);
  return by_direction(c, node.inputs[input], layer.batch_first ? 1 : 0);
}

// The biases of one direction. `input` is added to the product of the inputs and the weights W. `product` is added to
// the product of a GRU's state and the recurrence weights R.
struct Biases {
  ValueId input = ValueId::none, product = ValueId::none;
};

// Adds up the two halves of b (2 * gates * units): the bias of the inputs, and the bias of the product of the state and
// the recurrence weights R. The halves stay apart only in the last gate of a GRU with linear_before_reset, where the
// reset gate multiplies the second half.
Biases biases_of(Canonical &c, ValueId b, const Layer &layer) {
  if (b == ValueId::none) return {};
  const std::int64_t n = layer.units, all = layer.gates * n;
  const auto split = [&](const Integers &sizes) {
    return c.add_all("Split", {b}, {{"axis", std::int64_t{0}}, {"split", sizes}}, sizes.size());
  };
  if (!layer.resets_product) {
    const std::vector<ValueId> parts = split({all, all});
    return {.input = c.add("Add", {parts[0], parts[1]})};
  }
  const std::vector<ValueId> parts = split({2 * n, n, 2 * n, n});
  const ValueId first = c.add("Add", {parts[0], parts[2]});
  return {.input = c.add("Concat", {first, parts[1]}, {{"axis", std::int64_t{0}}}), .product = parts[3]};
}

// The results of one direction: the hidden states (S, B, H) of all steps, and for an LSTM also its cell states.
struct Results {
  ValueId states, cells;
};

std::vector<Results> run_directions(Canonical &c, const Node &node, const Layer &layer) {
  const std::vector<Attributes> attributes = attributes_of(node, layer);
  const std::vector<ValueId> w = by_direction(c, node.inputs.at(1), 0), r = by_direction(c, node.inputs.at(2), 0),
                             b = optional_by_direction(c, node, 3, layer), h0 = first_states(c, node, 5, layer),
                             c0 = first_states(c, node, 6, layer), p = optional_by_direction(c, node, 7, layer);
  const LayerKind &kind = kind_of(node);
  std::vector<Results> results;
  for (std::size_t d = 0; d < attributes.size(); ++d) {
    const Biases biases = biases_of(c, b[d], layer);
    std::vector<ValueId> operands = {layer.x, w[d]};
    if (biases.input != ValueId::none) operands.push_back(biases.input);
    const ValueId x = c.add("MatMul", operands, {{"trans_b", std::int64_t{1}}});
    operands = {x, r[d], h0[d], layer.lengths};
    if (node.op == "LSTM") {
      operands.push_back(p[d]);
      operands.push_back(c0[d]);
    }
    if (layer.resets_product) operands.push_back(biases.product);
    while (operands.back() == ValueId::none) operands.pop_back();
    const std::vector<ValueId> made = c.add_all(kind.core_op, operands, attributes[d], kind.results);
    results.push_back({made[0], node.op == "LSTM" ? made[2] : ValueId::none});
  }
  return results;
}

// Returns the states with zeros in the steps beyond each sample's length.
ValueId hidden_beyond_length(Canonical &c, ValueId states, const Layer &layer) {
  if (layer.lengths == ValueId::none) return states;
  Integers steps(static_cast<std::size_t>(layer.steps));
  for (std::size_t t = 0; t < steps.size(); ++t) steps[t] = static_cast<std::int64_t>(t);
  const ValueId at = c.rewriter().constant(graph::Array::from_integers({DType::i32, {layer.steps, 1, 1}}, steps));
  const ValueId seen = c.add("Less", {at, c.reshape(layer.lengths, {1, layer.batch, 1})});
  return c.add("Where", {seen, states, c.scalar(c.type(states).dtype, 0)});
}

ValueId joined(Canonical &c, const std::vector<ValueId> &parts, std::int64_t axis) {
  return parts.size() == 1 ? parts[0] : c.add("Concat", parts, {{"axis", axis}});
}

// Returns Y, all states: (steps, directions, batch, units), or (batch, steps, directions, units) if the batch comes
// first.
ValueId all_states(Canonical &c, const std::vector<Results> &results, const Layer &layer) {
  std::vector<ValueId> parts;
  for (const Results &direction : results)
    parts.push_back(
        c.reshape(hidden_beyond_length(c, direction.states, layer), {layer.steps, 1, layer.batch, layer.units}));
  const ValueId y = joined(c, parts, 1);
  return layer.batch_first ? c.transpose(y, {2, 0, 1, 3}) : y;
}

// Returns Y_h or Y_c, the states after each direction's last step: (directions, batch, units), or (batch, directions,
// units) if the batch comes first.
ValueId last_states(Canonical &c, const std::vector<Results> &results, ValueId Results::*of, const Layer &layer) {
  std::vector<ValueId> parts;
  for (std::size_t d = 0; d < results.size(); ++d) {
    const std::int64_t at = layer.reverse || d == 1 ? 0 : layer.steps - 1;
    parts.push_back(c.add("Slice", {results[d].*of},
                          {{"starts", Integers{at}}, {"ends", Integers{at + 1}}, {"axes", Integers{0}}}));
  }
  const ValueId states = joined(c, parts, 0);
  return layer.batch_first ? c.transpose(states, {1, 0, 2}) : states;
}

bool recurrent(Canonical &c, Node &node) {
  const Layer layer = layer_of(c, node);
  const std::vector<Results> results = run_directions(c, node, layer);
  const auto give = [&](std::size_t output, auto make) {
    if (c.rewriter().is_read(node, output)) c.pass(with_output(node, output), make());
  };
  give(1, [&] { return last_states(c, results, &Results::states, layer); });
  give(2, [&] { return last_states(c, results, &Results::cells, layer); });
  give(0, [&] { return all_states(c, results, layer); });
  return true;
}

}  // namespace

Rules recurrent_rules() { return {{"LSTM", recurrent}, {"GRU", recurrent}, {"RNN", recurrent}}; }

}  // namespace protrain::passes
