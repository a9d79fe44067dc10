// Turns a float32 graph into a narrow one, in bfloat16 or float16. A value is rounded once, by the node that computes
// it. Sums stay float32.
//   A second pass, doubles_to_floats(), turns the values that a float32 graph computes in float64 into float32.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/text.h"
#include "ops/op.h"
#include "ops/stored.h"
#include "passes/parameters/quantised.h"
#include "passes/passes.h"
#include "passes/rewriter.h"

namespace protrain::passes {

namespace {

using graph::Array;
using graph::Origin;

using Marks = std::vector<bool>;  // per value

bool any(const std::vector<ValueId> &ids, auto &&matches) {
  return std::ranges::any_of(ids, [&](ValueId id) { return id != ValueId::none && matches(id); });
}

constexpr double kLeastFloat16 = 0x1p-24;  // above 0

// Returns the largest finite number of a type narrower than float64.
double largest_of(DType dtype) {
  if (dtype == DType::f32) return static_cast<double>(std::numeric_limits<float>::max());
  return dtype == DType::f16 ? 65504 : 0x1.FEp127;
}

// Returns the array converted to `dtype`. Finite values stay finite: they are clamped to the largest finite number.
Array converted(const Array &array, DType dtype) {
  std::vector<double> values(static_cast<std::size_t>(array.stored_count()));
  graph::load(array.dtype(), array.bytes(), 1, array.stored_count(), values.data());
  for (double &value : values)
    if (std::isfinite(value)) value = std::clamp(value, -largest_of(dtype), largest_of(dtype));
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  graph::store(dtype, values.data(), array.stored_count(), bytes.data());
  return {{dtype, array.shape()}, array.stored(), std::move(bytes)};
}

// Marks the values that depend on a parameter.
Marks computed_of_parameters(const Graph &graph) {
  Marks marks(graph.value_count(), false);
  for (ValueId id : graph.parameters) marks[index(id)] = true;
  for (const Node &node : graph.nodes())
    if (any(node.inputs, [&](ValueId in) { return marks[index(in)]; }))
      for (ValueId out : node.outputs)
        if (out != ValueId::none) marks[index(out)] = true;
  return marks;
}

// Goes back from `id` through all nodes that only move elements, and returns the value before them.
ValueId moved_to(const Graph &graph, ValueId id) {
  for (graph::NodeId made_by; (made_by = graph.value(id).producer) != graph::NodeId::none;) {
    if (!ops::only_moves(graph.node(made_by).op)) break;
    id = graph.node(made_by).inputs[0];
  }
  return id;
}

bool has(const std::vector<std::size_t> &inputs, std::size_t input) {
  return std::ranges::find(inputs, input) != inputs.end();
}

// True for an operand that must be float32 while the node's other operands are narrow: one in the operator's list
// Op::always_wide, or a scale of quantised numbers.
bool must_be_wide(const Node &node, std::size_t input) {
  const ops::Op *op = ops::find(node.op);
  return (op != nullptr && has(op->always_wide, input)) || is_scale(node, input);
}

// Marks the parameters that stay float32: frozen ones that a node reads as an operand that must be float32. The node
// may read the parameter directly, or through nodes that only move elements, such as Gather.
Marks wide_parameters(const Graph &graph) {
  Marks marks(graph.value_count(), false);
  for (const Node &node : graph.nodes())
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (!must_be_wide(node, i) || node.inputs[i] == ValueId::none) continue;
      const ValueId source = moved_to(graph, node.inputs[i]);
      marks[index(source)] = graph.value(source).frozen;
    }
  return marks;
}

// True for an operand that may be float32 while the node's other operands are narrow. There are three kinds: operands
// that must be float32 (see must_be_wide()), those in the operator's list Op::wide, and states, such as a running mean.
bool may_be_wide(const Node &node, std::size_t input) {
  const ops::Op *op = ops::find(node.op);
  const bool state = op != nullptr && std::ranges::find(op->states, input, &ops::StateInput::input) != op->states.end();
  return must_be_wide(node, input) || state || (op != nullptr && has(op->wide, input));
}

class Narrowing {
 public:
  // `wide` marks results that stay float32.
  Narrowing(Graph &graph, DType narrow, const Marks &wide)
      : graph_(graph), narrow_(narrow), rewriter_(graph), wide_(wide) {
    of_parameters_ = computed_of_parameters(graph);
  }

  void run() {
    const Marks stay = wide_parameters(graph_);
    for (ValueId id : graph_.weights())
      if (is(id, DType::f32) && !stay[index(id)]) graph_.value(id).type.dtype = narrow_;
    rewriter_.walk([this](Node &node) { visit(node); });
  }

 private:
  bool is(ValueId id, DType dtype) const { return graph_.value(id).type.dtype == dtype; }
  bool is_wide(ValueId id) const { return index(id) < wide_.size() && wide_[index(id)]; }

  void visit(Node &node) {
    const bool wide = any(node.outputs, [&](ValueId out) { return is_wide(out); });
    const bool narrow = !wide && any(node.inputs, [&](ValueId in) { return is(in, narrow_); });
    const DType from = wide ? narrow_ : DType::f32, to = wide ? DType::f32 : narrow_;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      ValueId &in = node.inputs[i];
      if (in == ValueId::none) continue;
      if (must_be_wide(node, i) && is(in, narrow_))
        in = as(in, DType::f32, node);
      else if ((wide || narrow) && is(in, from) && !(narrow && may_be_wide(node, i)))
        in = as(in, to, node);
    }
    if (const char *type = result_type(node); !wide && type != nullptr && of_parameters_[index(node.inputs[0])])
      node.attributes.set(type, std::string(name_of(narrow_)));
    rewriter_.keep(std::move(node));
  }

  // Returns the name of the attribute that gives the result's type if the node is a DequantizeLinear or a Cast to
  // float32; else nullptr.
  const char *result_type(const Node &node) const {
    if (node.op == "DequantizeLinear") return "output_dtype";
    const bool cast = node.op == "Cast" && node.attributes.text("to", "") == name_of(DType::f32) &&
                      index(node.inputs[0]) < of_parameters_.size();
    return cast ? "to" : nullptr;
  }

  // Returns the value converted to type `dtype`. Each value is converted once, by nodes that belong to the block of its
  // first reader.
  ValueId as(ValueId id, DType dtype, const Node &reader) {
    const auto found = converted_.find({id, dtype});
    if (found != converted_.end()) return found->second;
    ValueId made;
    if (const Array *array = rewriter_.constant_of(id)) {
      made = rewriter_.constant(converted(*array, dtype));
    } else {
      const bool of_data = dtype != narrow_ || index(id) >= of_parameters_.size() || of_parameters_[index(id)];
      made = keep("Cast", of_data ? id : limited(id, reader), {{"to", std::string(name_of(dtype))}}, reader);
    }
    return converted_[{id, dtype}] = made;
  }

  // Clips a value to the finite numbers of the narrow type. A mask can hold the lowest float32, which would be rounded
  // to -infinity in the narrow type, and Softmax makes NaN of a row of -infinity.
  ValueId limited(ValueId id, const Node &reader) {
    const double largest = largest_of(narrow_);
    return keep("Clip", id, {{"min", -largest}, {"max", largest}}, reader);
  }

  ValueId keep(const char *op, ValueId input, graph::Attributes attributes, const Node &reader) {
    const ValueId made = rewriter_.new_value();
    rewriter_.keep({.op = op,
                    .name = rewriter_.base_name(),
                    .attributes = std::move(attributes),
                    .inputs = {input},
                    .outputs = {made},
                    .block = reader.block,
                    .phase = reader.phase});
    return made;
  }

  Graph &graph_;
  const DType narrow_;
  Rewriter rewriter_;
  const Marks &wide_;
  Marks of_parameters_;
  std::map<std::pair<ValueId, DType>, ValueId> converted_;
};

// Marks values that stay float32 although they are computed from parameters.
class Exceptions {
 public:
  // `narrowed` is a copy of the graph that was made narrow without exceptions. Values that are not narrow in this copy
  // need no mark.
  Exceptions(const Graph &graph, const Graph &narrowed, DType narrow)
      : graph_(graph), narrowed_(narrowed), narrow_(narrow), wide_(graph.value_count(), false) {}

  Marks find(ValueId loss) {
    const auto ends_tail = [this](const Node &node) {
      return node.block >= 0 || multiplies(node) || reads(node, Origin::parameter);
    };
    mark_back_from({loss}, ends_tail);

    // A product with a constant is a grid of coordinates, as in AffineGrid.
    const auto ends_places = [this](const Node &node) {
      return (multiplies(node) && !reads(node, Origin::constant)) || reads(node, Origin::parameter);
    };
    std::vector<ValueId> places;
    for (const Node &node : graph_.nodes())
      if (becomes_integer(node)) places.push_back(node.inputs[0]);
    mark_back_from(std::move(places), ends_places);

    std::vector<ValueId> near_one;
    for (const Node &node : graph_.nodes())
      if (const ValueId id = near_one_in(node); id != ValueId::none) near_one.push_back(id);
    mark_back_from(std::move(near_one), [](const Node &node) { return !is_arithmetic(node); });

    for (const Node &node : graph_.nodes())
      if (node.op == "CumSum") wide_[index(node.outputs[0])] = true;
    if (narrow_ == DType::f16) mark_outside_float16();
    return std::move(wide_);
  }

 private:
  // Marks the values and, node by node, those that they are computed from, up to nodes at which the way back ends.
  void mark_back_from(std::vector<ValueId> pending, auto &&ends) {
    Marks seen(graph_.value_count(), false);
    while (!pending.empty()) {
      const ValueId id = pending.back();
      pending.pop_back();
      const Node *node = maker_of(id);
      if (node == nullptr || seen[index(id)] || narrowed_.value(id).type.dtype != narrow_) continue;
      seen[index(id)] = wide_[index(id)] = true;
      for (ValueId in : node->inputs)
        if (const Node *before = maker_of(in); before != nullptr && !ends(*before)) pending.push_back(in);
    }
  }

  // Marks the results that need a greater range than that of float16: from 6e-8, below which a number becomes 0, to
  // 65504. bfloat16 has the range of float32.
  void mark_outside_float16() {
    Marks within = narrowed_weights();  // narrow values, and others of a range that float16 has
    for (const Node &node : graph_.nodes()) {
      const bool scales = scales_by_outside(node, within);
      const bool outside = is_power(node) || reads_tiny_number(node);
      if (outside || scales) wide_[index(node.outputs[0])] = true;

      const bool reads_within = any(node.inputs, [&](ValueId in) { return within[index(in)]; });
      const bool reads_float = any(node.inputs, [&](ValueId in) { return is_computed_float(in); });
      for (ValueId out : node.outputs) {
        if (out == ValueId::none || narrowed_.value(out).type.dtype != narrow_) continue;
        // A scaled result has the range of its other operand again, so it makes no further result float32.
        within[index(out)] = scales || (!outside && (reads_within || !reads_float));
      }
    }
  }

  Marks narrowed_weights() const {
    Marks marks(graph_.value_count(), false);
    for (ValueId id : graph_.weights()) marks[index(id)] = narrowed_.value(id).type.dtype == narrow_;
    return marks;
  }

  bool is_computed_float(ValueId id) const {
    const graph::Value &value = graph_.value(id);
    return value.type.dtype == DType::f32 && value.origin != Origin::constant;
  }

  // True if the node divides by a float32 value, such as the length of a vector, or multiplies by one, such as the
  // inverse of a length. Lengths and their inverses are often outside the range of float16.
  bool scales_by_outside(const Node &node, const Marks &within) const {
    const auto is_wide = [&](ValueId id) { return is_computed_float(id) && !within[index(id)]; };
    if (node.op == "Div") return is_wide(node.inputs[1]);
    return node.op == "Mul" && any(node.inputs, [&](ValueId in) {
             return is_wide(in) && narrowed_.value(in).type.dtype == narrow_;  // not a mask made from data
           });
  }

  // True if the node computes with a number that float16 holds as 0, such as the least length of a vector. Tables of
  // constants do not count: the sines of positions include tiny numbers that do not matter.
  bool reads_tiny_number(const Node &node) const {
    const auto is_tiny = [](double number) { return number != 0 && std::abs(number) < kLeastFloat16; };
    if (node.op == "Clip") return is_tiny(node.attributes.real("min", 0)) || is_tiny(node.attributes.real("max", 0));
    return any(node.inputs, [&](ValueId in) {
      const graph::Value &value = graph_.value(in);
      const bool is_number =
          value.origin == Origin::constant && value.type.dtype == DType::f32 && value.array.stored_count() == 1;
      return is_number && is_tiny(value.array.stored_double(0));
    });
  }

  // Returns the node that computes the value, or nullptr.
  const Node *maker_of(ValueId id) const {
    if (id == ValueId::none || graph_.value(id).producer == graph::NodeId::none) return nullptr;
    return &graph_.node(graph_.value(id).producer);
  }

  static bool multiplies(const Node &node) { return node.op == "MatMul" || node.op == "FusedAttention"; }

  bool reads(const Node &node, Origin origin) const {
    return any(node.inputs, [&](ValueId in) { return graph_.value(in).origin == origin; });
  }

  // True for a Cast to integers. Its operand is often a position, as in GridSample. Between 128 and 256, bfloat16 holds
  // whole numbers alone, and from 256 on not all of them.
  bool becomes_integer(const Node &node) const {
    return node.op == "Cast" && is_integer(graph_.value(node.outputs[0]).type.dtype);
  }

  static bool is_arithmetic(const Node &node) { return one_of(node.op, {"Add", "Sub", "Mul", "Div", "Neg", "Exp"}); }

  // Returns the value that is computed from one near 1 if the node is a part of log(1 + x), of log((1 + x) / (1 - x)),
  // or of e^x - 1 or 1 - e^x; else ValueId::none. A small x has no digit left if the value near 1 is rounded to 16
  // bits.
  ValueId near_one_in(const Node &node) const {
    const auto is_made = [this](ValueId id, auto &&by) { return maker_of(id) != nullptr && by(*maker_of(id)); };
    if (node.op == "Log" && is_made(node.inputs[0], is_arithmetic)) return node.inputs[0];
    const auto is_power_of_e = [](const Node &before) { return before.op == "Exp"; };
    const bool less_one = node.op == "Sub" && reads(node, Origin::constant) &&
                          any(node.inputs, [&](ValueId in) { return is_made(in, is_power_of_e); });
    return less_one ? node.outputs[0] : ValueId::none;
  }

  // True for squares and other powers. In float16 the square of 256 is infinite already, although the length of a
  // vector, to which a sum of squares belongs, would be finite. A sum of float32 values is float32 too.
  static bool is_power(const Node &node) {
    return node.op == "Pow" || (node.op == "Mul" && node.inputs[0] == node.inputs[1]);
  }

  const Graph &graph_, &narrowed_;
  const DType narrow_;
  Marks wide_;
};

// Returns the name of the attribute that gives the type of the node's result, if this type is float64; else nullptr.
const char *makes_doubles(const Node &node) {
  for (const char *key : {"to", "dtype"})
    if (node.attributes.text(key, "") == name_of(DType::f64)) return key;
  return nullptr;
}

}  // namespace

bool doubles_to_floats(Graph &graph) {
  if (!std::ranges::any_of(graph.nodes(), makes_doubles)) return false;
  Rewriter rewriter(graph);
  rewriter.walk([&](Node &node) {
    for (ValueId &in : node.inputs) {
      if (node.op == "Cast" || in == ValueId::none || rewriter.type(in).dtype != DType::f64) continue;
      const Array *array = rewriter.constant_of(in);
      in = array != nullptr ? rewriter.constant(converted(*array, DType::f32))
                            : rewriter.emit("Cast", {in}, {{"to", std::string(name_of(DType::f32))}});
    }
    if (const char *key = makes_doubles(node)) node.attributes.set(key, std::string(name_of(DType::f32)));
    rewriter.keep(std::move(node));
  });
  return true;
}

void to_narrow(Graph &graph, ValueId loss, DType narrow) {
  Graph narrowed = graph;
  Narrowing(narrowed, narrow, {}).run();
  const Marks wide = Exceptions(graph, narrowed, narrow).find(loss);
  Narrowing(graph, narrow, wide).run();
  graph::verify(graph);
}

}  // namespace protrain::passes
