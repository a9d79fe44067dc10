// Recurrent layers. Canonicalization splits ONNX's LSTM, GRU and RNN in two: products with the inputs of all steps at
// once, and one of the following operators, which computes what depends on the step before:
//
//   LstmSteps(x, r[, h0, lengths, peepholes, c0]) -> y, gates, cells
//   GruSteps(x, r[, h0, lengths, bias]) -> y, gates
//   RnnSteps(x, r[, h0, lengths]) -> y
//
// There are S steps, a batch of B samples, H units and G gates in ONNX's order. x (S, B, G * H) are the products with
// the inputs, r (G * H, H) are the recurrent weights, and y (S, B, H) are the states after each step. A sample keeps
// its state in the steps that lie beyond its length. With the attribute `reverse`, the last step comes first. `f`, `g`
// and `h` name activations, and f_alpha, f_beta, ... give their coefficients. Gradients need `gates` and `cells`:
//
//   LstmStepsGrad(dy, r, h0, lengths, peepholes, c0, none, gates, cells[, dcells]) -> dx, dh0, dc0
//   GruStepsGrad(dy, r, h0, lengths, bias, none, y, gates) -> dx, dh0[, d(h R)]
//   RnnStepsGrad(dy, r, h0, lengths, none, none, y) -> dx, dh0
//
// An input `none` is always absent. The last output of GruStepsGrad exists with linear_before_reset, where x and h R
// have different gradients. All other gradients are products and sums of these.
#include "ops/recurrent.h"

#include <algorithm>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;
using Integers = std::vector<std::int64_t>;
using Cell = RecurrentSettings::Cell;

void require_operand(const NodeTypes &types, std::size_t i, const Type &expected) {
  require(!types.has(i) || types.input(i) == expected, Code::shape, types.subject(),
          "input {} of {} is {}, expected {}", i, types.node.op, types.has(i) ? to_text(types.input(i)) : "",
          to_text(expected));
}

// Checks inputs 1 to 5, which forward nodes and gradient nodes have in common, and returns the sizes. `per_step` is the
// type of an operand (S, B, ...).
RecurrentSettings require_steps(const NodeTypes &types, const Type &per_step) {
  const Type &r = types.input(1);
  require(per_step.shape.size() == 3 && r.shape.size() == 2, Code::shape, types.subject(), "{} takes no {} and {}",
          types.node.op, to_text(per_step), to_text(r));
  const RecurrentSettings s(types.node, r, per_step.shape);
  require(r == Type({per_step.dtype, {s.gates * s.units, s.units}}), Code::shape, types.subject(),
          "recurrent weights of {}", to_text(r));
  require_operand(types, 2, {r.dtype, {s.batch, s.units}});
  require_operand(types, 3, {DType::i32, {s.batch}});
  require_operand(types, 4, {r.dtype, {s.extras() * s.units}});
  require_operand(types, 5, {r.dtype, {s.batch, s.units}});
  return s;
}

std::vector<Type> infer_steps(const NodeTypes &types) {
  const Type x = float_input(types, 0);
  const RecurrentSettings s = require_steps(types, x);
  require_operand(types, 0, {x.dtype, {s.steps, s.batch, s.gates * s.units}});
  std::vector<Type> out = {{x.dtype, {s.steps, s.batch, s.units}}};
  if (s.saved() > 0) out.push_back({x.dtype, {s.steps, s.batch, s.saved() * s.units}});
  if (s.cell == Cell::lstm) out.push_back({sum_dtype(x.dtype), {s.steps, s.batch, s.units}});
  return out;
}

// Returns the index of an input that is never absent and has a row for each step and sample.
std::size_t input_of_steps(const std::string &op) {
  if (!op.ends_with("Grad")) return 0;
  return op.starts_with("Lstm") ? kRecurrentGates : kRecurrentStates;
}

std::vector<Type> infer_steps_gradient(const NodeTypes &types) {
  const bool lstm = types.node.op.starts_with("Lstm");
  const Type per_step = float_input(types, input_of_steps(types.node.op));
  const RecurrentSettings s = require_steps(types, per_step);
  const Type y{per_step.dtype, {s.steps, s.batch, s.units}}, cells{sum_dtype(per_step.dtype), y.shape};
  require_operand(types, 0, y);
  require_operand(types, kRecurrentStates, y);
  require_operand(types, kRecurrentGates, {y.dtype, {s.steps, s.batch, s.saved() * s.units}});
  require_operand(types, kRecurrentCells, cells);
  require_operand(types, kCellGradients, cells);
  const Type dx{y.dtype, {s.steps, s.batch, s.gates * s.units}}, state{y.dtype, {s.batch, s.units}};
  std::vector<Type> out = {dx, state};
  if (lstm) out.push_back(state);
  if (s.resets_product) out.push_back(dx);
  return out;
}

ValueId slice(GradientBuilder &builder, ValueId x, std::int64_t axis, std::int64_t begin, std::int64_t end) {
  return builder.emit("Slice", {x}, {{"starts", Integers{begin}}, {"ends", Integers{end}}, {"axes", Integers{axis}}});
}

// Returns a matrix (S * B, H) of the states before each step. Before the first step this is `initial` (B, H), or zeros
// if `initial` is absent. Before any other step it is the state after the previous step, from `states` (S, B, H),
// converted to `dtype`.
ValueId states_before(GradientBuilder &builder, const RecurrentSettings &s, ValueId states, ValueId initial,
                      DType dtype) {
  const Shape one = {1, s.batch, s.units};
  const ValueId first = initial == ValueId::none ? builder.constant({dtype, one}, 0)
                                                 : builder.emit("Reshape", {initial}, {{"shape", one}});
  ValueId before = first;
  if (s.steps > 1) {
    ValueId rest = slice(builder, states, 0, s.reverse ? 1 : 0, s.reverse ? s.steps : s.steps - 1);
    if (builder.type(rest).dtype != dtype) rest = builder.emit("Cast", {rest}, {{"to", std::string(name_of(dtype))}});
    const std::vector<ValueId> parts =
        s.reverse ? std::vector<ValueId>{rest, first} : std::vector<ValueId>{first, rest};
    before = builder.emit("Concat", parts, {{"axis", std::int64_t{0}}});
  }
  return builder.emit("Reshape", {before}, {{"shape", Shape{s.steps * s.batch, s.units}}});
}

ValueId as_rows(GradientBuilder &builder, ValueId x) {
  const Shape shape = builder.type(x).shape;
  return builder.emit("Reshape", {x}, {{"shape", Shape{shape[0] * shape[1], shape[2]}}});
}

ValueId sum_of_rows(GradientBuilder &builder, ValueId x) {
  return builder.emit("ReduceSum", {x}, {{"axes", Integers{0}}, {"keepdims", std::int64_t{0}}});
}

// Returns dr = d^T h, the gradient of the recurrent weights r. `d` holds the gradients of the products of h and r, for
// all steps. A GRU without resets_product multiplies the last gate's rows of r not by h, but by h times the reset gate.
// So for these rows dr is computed from that product.
ValueId gradient_of_weights(GradientBuilder &builder, const RecurrentSettings &s, ValueId d, ValueId h, ValueId gates) {
  const Attributes transposed = {{"trans_a", std::int64_t{1}}};
  if (s.cell != Cell::gru || s.resets_product) return builder.emit("MatMul", {d, h}, transposed);
  const std::int64_t n = s.units;
  const ValueId reset = slice(builder, as_rows(builder, gates), 1, n, 2 * n);
  const ValueId first = builder.emit("MatMul", {slice(builder, d, 1, 0, 2 * n), h}, transposed);
  const ValueId last =
      builder.emit("MatMul", {slice(builder, d, 1, 2 * n, 3 * n), builder.emit("Mul", {reset, h})}, transposed);
  return builder.emit("Concat", {first, last}, {{"axis", std::int64_t{0}}});
}

// Returns the gradient of the peepholes of gates i, o and f. Gates i and f look at the cell before the step, and gate o
// at the cell after it.
ValueId gradient_of_peepholes(GradientBuilder &builder, const RecurrentSettings &s, ValueId d, ValueId before,
                              ValueId cells) {
  const DType dtype = builder.type(d).dtype;
  ValueId after = as_rows(builder, cells);
  if (builder.type(after).dtype != dtype) after = builder.emit("Cast", {after}, {{"to", std::string(name_of(dtype))}});
  std::vector<ValueId> parts;
  for (std::int64_t gate = 0; gate < 3; ++gate) {
    const ValueId of_gate = slice(builder, d, 1, gate * s.units, (gate + 1) * s.units);
    parts.push_back(sum_of_rows(builder, builder.emit("Mul", {of_gate, gate == 1 ? after : before})));
  }
  return builder.emit("Concat", parts, {{"axis", std::int64_t{0}}});
}

// Contributes the gradients of the recurrent weights r and of input 4 (an LSTM's peepholes, or a GRU's bias). For each
// step and sample, `d` has a row with the gradient of the product of the state and r.
void contribute_to_weights(GradientBuilder &builder, const Node &node, const RecurrentSettings &s, ValueId d) {
  const auto input = [&](std::size_t i) { return i < node.inputs.size() ? node.inputs[i] : ValueId::none; };
  const DType dtype = builder.type(d).dtype;
  if (builder.wants(node.inputs[1])) {
    const ValueId h = states_before(builder, s, node.outputs[0], input(2), dtype);
    const ValueId gates = s.saved() > 0 ? node.outputs.at(1) : ValueId::none;
    builder.contribute(node.inputs[1], gradient_of_weights(builder, s, d, h, gates));
  }
  if (!builder.wants(input(4))) return;
  if (s.cell == Cell::lstm) {
    const ValueId before = states_before(builder, s, node.outputs.at(2), input(5), dtype);
    builder.contribute(input(4), gradient_of_peepholes(builder, s, d, before, node.outputs[2]));
  } else {
    builder.contribute(input(4), sum_of_rows(builder, slice(builder, d, 1, 2 * s.units, 3 * s.units)));
  }
}

void differentiate_steps(GradientBuilder &builder, const Node &node) {
  if (std::ranges::none_of(node.inputs, [&](ValueId in) { return builder.wants(in); })) return;
  const RecurrentSettings s(node, builder.type(node.inputs[1]), builder.type(node.inputs[0]).shape);
  const auto output = [&](std::size_t i) { return i < node.outputs.size() ? node.outputs[i] : ValueId::none; };
  const bool lstm = s.cell == Cell::lstm;
  std::vector<ValueId> inputs = node.inputs;
  inputs.resize(lstm ? kCellGradients + 1 : s.saved() > 0 ? kRecurrentGates + 1 : kRecurrentStates + 1, ValueId::none);
  inputs[0] = builder.gradient_of(output(0));
  if (!lstm) inputs[kRecurrentStates] = output(0);
  if (s.saved() > 0) inputs[kRecurrentGates] = output(1);
  if (lstm) {
    inputs[kRecurrentCells] = output(2);
    inputs[kCellGradients] = builder.gradient_of(output(2));
  }
  const std::vector<ValueId> made =
      builder.emit(node.op + "Grad", inputs, node.attributes, lstm || s.resets_product ? 3 : 2);
  constexpr std::pair<std::size_t, std::size_t> kContributions[] = {{0, 0}, {2, 1}, {5, 2}};  // input, gradient
  for (const auto &[i, gradient] : kContributions)
    if (i < node.inputs.size() && builder.wants(node.inputs[i])) builder.contribute(node.inputs[i], made.at(gradient));
  contribute_to_weights(builder, node, s, as_rows(builder, made[s.resets_product ? 2 : 0]));
}

// Returns the flops of a forward or gradient node: one product of (B, H) and (H, G * H) for each step.
double steps_flops(const NodeTypes &types, std::span<const Type>) {
  const Shape &r = types.input(1).shape, &per_step = types.input(input_of_steps(types.node.op)).shape;
  return 2.0 * static_cast<double>(per_step[0] * per_step[1]) * static_cast<double>(r[0] * r[1]);
}

// Returns an estimate of the scratch, which holds copies of r and the sums of one step: twice the bytes of r.
std::uint64_t steps_scratch(const NodeTypes &types, bool) {
  const Shape &r = types.input(1).shape;
  return 2 * byte_count(types.input(1).dtype, r);
}

// Infers the types of the outputs Y, Y_h[, Y_c] of ONNX's LSTM, GRU and RNN. The inputs of an LSTM are X, W, R, B,
// sequence_lens, initial_h, initial_c and P. GRU and RNN have the first six of these.
std::vector<Type> infer_layer(const NodeTypes &types) {
  const Type x = float_input(types, 0), w = types.input(1), r = types.input(2);
  const std::int64_t gates = types.node.op == "LSTM" ? 4 : types.node.op == "GRU" ? 3 : 1;
  const std::string direction = types.node.attributes.text("direction", "forward");
  require(direction == "forward" || direction == "reverse" || direction == "bidirectional", Code::graph,
          types.subject(), "direction \"{}\" of {} is none of ONNX's", direction, types.node.op);
  require(x.shape.size() == 3 && r.shape.size() == 3, Code::shape, types.subject(),
          "{} takes sequences of three axes, not {} with recurrent weights of {}", types.node.op, to_text(x),
          to_text(r));
  const bool batch_first = types.node.attributes.integer("layout", 0) != 0;
  const std::int64_t directions = direction == "bidirectional" ? 2 : 1, units = r.shape[2];
  const std::int64_t steps = x.shape[batch_first ? 1 : 0], batch = x.shape[batch_first ? 0 : 1];
  require(types.node.attributes.integer("hidden_size", units) == units, Code::shape, types.subject(),
          "hidden_size {}, and recurrent weights of {}", types.node.attributes.integer("hidden_size", 0), to_text(r));
  const Shape state = batch_first ? Shape{batch, directions, units} : Shape{directions, batch, units};
  const std::int64_t rows = gates * units;
  require_operand(types, 1, {x.dtype, {directions, rows, x.shape[2]}});
  require_operand(types, 2, {x.dtype, {directions, rows, units}});
  require_operand(types, 3, {x.dtype, {directions, 2 * rows}});
  require_operand(types, 4, {DType::i32, {batch}});
  require_operand(types, 5, {x.dtype, state});
  require_operand(types, 6, {x.dtype, state});
  require_operand(types, 7, {x.dtype, {directions, 3 * units}});
  const Shape y = batch_first ? Shape{batch, steps, directions, units} : Shape{steps, directions, batch, units};
  std::vector<Type> out = {{x.dtype, y}, {x.dtype, state}};
  if (types.node.op == "LSTM") out.push_back({x.dtype, state});
  return out;
}

}  // namespace

Family recurrent_family() {
  struct Row {
    const char *name, *gradient;
    std::vector<std::size_t> optional, optional_of_gradient;
  };
  Family family;
  for (const Row &row : {Row{"LstmSteps", "LstmStepsGrad", {2, 3, 4, 5}, {0, 2, 3, 4, 5, 6, 9}},
                         Row{"GruSteps", "GruStepsGrad", {2, 3, 4}, {2, 3, 4, 5}},
                         Row{"RnnSteps", "RnnStepsGrad", {2, 3}, {2, 3, 4, 5}}}) {
    family.push_back({.name = row.name,
                      .infer = infer_steps,
                      .evaluate = evaluate_recurrent,
                      .gradient = differentiate_steps,
                      .flops = steps_flops,
                      .optional = row.optional,
                      .scratch = steps_scratch});
    family.push_back({.name = row.gradient,
                      .infer = infer_steps_gradient,
                      .evaluate = evaluate_recurrent_gradient,
                      .flops = steps_flops,
                      .optional = row.optional_of_gradient,
                      .scratch = steps_scratch});
  }
  family.push_back({.name = "LSTM", .infer = infer_layer, .optional = {3, 4, 5, 6, 7}, .file_only = true});
  family.push_back({.name = "GRU", .infer = infer_layer, .optional = {3, 4, 5}, .file_only = true});
  family.push_back({.name = "RNN", .infer = infer_layer, .optional = {3, 4, 5}, .file_only = true});
  return family;
}

}  // namespace protrain::ops
