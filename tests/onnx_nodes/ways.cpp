// Runs a case through the same steps as a model: import, fold, fuse, kernels.
//   Some numbers determine shapes. A model stores them as constants, but a case has them as inputs. So a case that is
// refused is tried again: first with all inputs that are not floats as constants, then also with the inputs of at most
// two elements.
#include "onnx_nodes/ways.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "backend/kernel_check.h"
#include "onnx_import/wire.h"
#include "onnx_nodes/slopes.h"
#include "passes/canonical/canonical.h"
#include "passes/passes.h"

namespace protrain::test {

namespace {

using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::ValueId;
using Arrays = std::vector<Array>;

constexpr int kThreads = 2;
constexpr int kMostFusions = 5;

onnx_import::DimBindings bindings_of(const onnx_import::Model &model, const Arrays &inputs) {
  onnx_import::DimBindings dims;
  for (std::size_t i = 0; i < model.inputs().size(); ++i)
    for (std::size_t axis = 0; axis < model.inputs()[i].dims.size(); ++axis)
      if (const auto *name = std::get_if<std::string>(&model.inputs()[i].dims[axis]))
        dims[*name] = inputs.at(i).shape().at(axis);
  return dims;
}

void require_core(const Graph &graph) {
  for (const Node &node : graph.nodes()) {
    const ops::Op *op = ops::find(node.op);
    require(op != nullptr, Code::unsupported, node.op, "{} is unknown", node.op);
    const bool open =
        std::ranges::any_of(op->absorbed, [&](const auto &item) { return passes::has(node, item.input); });
    require(passes::is_core(node.op) && !open, Code::unsupported, node.op,
            "{} has a form that is not supported on data", node.op);
  }
}

// Computes every value of the graph with the CPU's kernels, node by node. `values` has the values of the graph's
// inputs.
std::map<ValueId, Array> compute(const Graph &graph, std::map<ValueId, Array> values) {
  for (const Node &node : graph.nodes()) {
    OneNode one{.op = node.op, .attributes = node.attributes, .inputs = {}, .outputs = {}};
    for (ValueId in : node.inputs) {
      const bool stored = in != ValueId::none && graph.value(in).origin == Origin::constant;
      one.inputs.push_back(in == ValueId::none ? Array() : stored ? graph.value(in).array : values.at(in));
    }
    for (ValueId out : node.outputs) one.outputs.push_back(out != ValueId::none);
    if (node.op == "Reshape") {  // an alias, without a kernel
      values[node.outputs[0]] = one.inputs[0].reshaped(graph.value(node.outputs[0]).type.shape);
      continue;
    }
    const Arrays results = run_on_cpu(one, kThreads);
    for (std::size_t i = 0; i < results.size(); ++i)
      if (one.outputs[i]) values[node.outputs[i]] = results[i];
  }
  return values;
}

// Debian's files store bfloat16 as uint16. Returns the array with the same bits as bfloat16.
Array as_bfloat16(const Array &array) {
  const Array dense = array.densified();
  return Array::dense({DType::bf16, array.shape()}, {dense.bytes(), dense.bytes() + dense.stored_bytes()});
}

// Converts an array of floats to the float type `dtype`; other arrays stay as they are. This is needed because the
// importer replaces a file's float16 and bfloat16 by float32. In a model of float64, it replaces float64 too.
Array in_type_of(DType dtype, const Array &array) {
  if (array.dtype() == dtype || !is_float(array.dtype()) || !is_float(dtype)) return array;
  return Array::from_doubles({dtype, array.shape()}, array.doubles());
}

bool is_narrow(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

// Describes the first output that differs from the expected one; "" if none does. Integers must be equal. The tolerance
// is 1e-4, and 1e-2 where the file's type has 16 bits.
std::string difference(const Arrays &found, Arrays expected, const std::vector<onnx_import::Output> &in_file) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const bool narrow = is_narrow(in_file.at(i).dtype);
    if (in_file[i].dtype == DType::bf16 && expected[i].dtype() == DType::u16) expected[i] = as_bfloat16(expected[i]);
    expected[i] = in_type_of(found.at(i).dtype(), expected[i]);
    if (found[i].type() != expected[i].type())
      return fmt::format("output {} is {}, not {}", i, to_text(found[i].type()), to_text(expected[i].type()));
    const double tolerance = !is_float(expected[i].dtype()) ? 0 : narrow ? 1e-2 : 1e-4;
    const double error = largest_error(found[i], expected[i]);
    if (error > tolerance) return fmt::format("output {} is off by {:.3g}", i, error);
  }
  return "";
}

class Trial {
 public:
  explicit Trial(const Case &given)
      : model_(open_bytes(scratch_, given.model)),
        inputs_(arrays_of(given.inputs)),
        expected_(arrays_of(given.outputs)) {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      if (model_->inputs().at(i).dtype == DType::bf16 && inputs_[i].dtype() == DType::u16)
        inputs_[i] = as_bfloat16(inputs_[i]);
    const Graph graph = model_->graph(bindings_of(*model_, inputs_));
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      inputs_[i] = in_type_of(graph.value(input_of(graph, i)).type.dtype, inputs_[i]);
  }

  // The graph in core operators. Inputs for which `is_constant` is true become constants. If `wide`, floats are
  // float64.
  Bound prepared(const std::function<bool(const Array &)> &is_constant, bool wide) const {
    Bound bound{.graph = model_->graph(bindings_of(*model_, inputs_)), .values = {}};
    Graph &graph = bound.graph;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const ValueId id = input_of(graph, i);
      graph::Value &value = graph.value(id);
      value.type = inputs_[i].type();
      if (value.origin == Origin::constant || is_constant(inputs_[i])) {
        value.origin = Origin::constant;
        value.array = inputs_[i];
      } else {
        bound.values[id] = inputs_[i];
      }
    }
    std::erase_if(graph.inputs, [&](ValueId id) { return !bound.values.contains(id); });
    for (std::size_t i = 0; i < graph.value_count(); ++i) {
      graph::Value &value = graph.value(static_cast<ValueId>(i));
      if (value.origin != Origin::initializer) continue;
      value.array = model_->load(value.name);
      value.origin = Origin::constant;
    }
    if (wide) widen(bound);
    passes::FoldBudget budget(graph);
    passes::fold(graph, budget, &model_->bodies());
    require_core(graph);
    passes::clean_up(graph);
    for (int round = 0; round < kMostFusions && passes::fuse(graph); ++round) {
      passes::fold(graph);
      passes::clean_up(graph);
    }
    require_core(graph);
    return bound;
  }

  // Runs the graph on kernels. Returns "" if the results are right, else what is wrong. Returns nullopt if folding has
  // left no node to run. Throws an Error if the library refuses the graph or the graph draws random numbers.
  std::optional<std::string> computed(const std::function<bool(const Array &)> &is_constant) const {
    const Bound bound = prepared(is_constant, false);
    const auto draws = [](const Node &n) { return n.op == "Dropout" || n.op == "Uniform"; };
    const bool random = std::ranges::any_of(bound.graph.nodes(), draws);
    require(!random, Code::type, "", "draws random numbers");
    if (bound.graph.node_count() == 0) return std::nullopt;
    return difference(results(bound.graph, compute(bound.graph, bound.values)), expected_, model_->outputs());
  }
  std::string folded() const {
    const Bound bound = prepared([](const Array &) { return true; }, false);
    require(bound.graph.node_count() == 0, Code::unsupported, "", "does not fold");
    return difference(results(bound.graph, {}), expected_, model_->outputs());
  }
  const Arrays &inputs() const { return inputs_; }

 private:
  // Returns the graph's value for input `i` of the file. Finds it by name, because graph.inputs leaves out inputs
  // without elements.
  ValueId input_of(const Graph &graph, std::size_t i) const { return graph.find(model_->inputs().at(i).name); }

  Arrays results(const Graph &graph, const std::map<ValueId, Array> &values) const {
    Arrays found;
    for (ValueId out : graph.outputs)
      found.push_back(graph.value(out).origin == Origin::constant ? graph.value(out).array : values.at(out));
    return found;
  }

  Scratch scratch_;
  std::unique_ptr<onnx_import::Model> model_;
  Arrays inputs_, expected_;
};

// Rules for which inputs become constants, in the order in which they are tried: no input; all inputs that are not
// floats; these and all inputs of at most two elements.
const std::vector<std::function<bool(const Array &)>> &known_inputs() {
  static const std::vector<std::function<bool(const Array &)>> ways = {
      [](const Array &) { return false; },
      [](const Array &array) { return !is_float(array.dtype()); },
      [](const Array &array) { return !is_float(array.dtype()) || element_count(array.shape()) <= 2; },
  };
  return ways;
}

Result run_forwards(const Trial &trial) {
  std::string refusal;
  for (const auto &is_constant : known_inputs()) {
    try {
      const std::optional<std::string> wrong = trial.computed(is_constant);
      if (wrong.has_value() && !wrong->empty()) return {.outcome = Outcome::wrong, .reason = "computed: " + *wrong};
      if (wrong.has_value()) return {.outcome = Outcome::computed};
    } catch (const Error &error) {
      if (error.code == Code::type && error.text == "draws random numbers")
        return {.outcome = Outcome::inapplicable, .reason = error.text};
      if (error.code == Code::internal) return {.outcome = Outcome::wrong, .reason = error.text};
      refusal = error.text;
    }
  }
  return {.outcome = Outcome::refused, .reason = refusal};
}

// Checks gradients in float64 with the operators' reference arithmetic. Uses the first choice of constants that the
// library accepts.
void check_slopes_of(const Trial &trial, Result &result) {
  if (result.outcome != Outcome::computed && result.outcome != Outcome::folded) return;
  for (const auto &is_constant : known_inputs()) {
    const auto make = [&] { return trial.prepared(is_constant, true); };
    try {
      if (make().graph.node_count() == 0) return;
    } catch (const Error &error) {
      if (error.code == Code::unsupported) continue;
      throw;
    }
    std::string reason;
    result.slope = check_slopes(make, reason);
    (result.slope == Slope::wrong ? result.reason : result.without) = reason;
    if (result.slope == Slope::wrong) result.outcome = Outcome::wrong;
    return;
  }
}

Result run_all(const Case &given) {
  if (!given.only_tensors) return {.outcome = Outcome::inapplicable, .reason = "values that are no tensors"};
  std::optional<Trial> trial;
  try {
    arrays_of(given.inputs);
    arrays_of(given.outputs);
  } catch (const Error &error) {
    return {.outcome = Outcome::inapplicable, .reason = error.text};
  }
  try {
    trial.emplace(given);
  } catch (const Error &error) {
    return {.outcome = Outcome::refused, .reason = error.text};
  }
  Result result = run_forwards(*trial);
  if (result.outcome == Outcome::wrong || result.outcome == Outcome::inapplicable) return result;
  try {
    const std::string wrong = trial->folded();
    if (!wrong.empty()) return {.outcome = Outcome::wrong, .reason = "folded: " + wrong};
    if (result.outcome == Outcome::refused) result = {.outcome = Outcome::folded};
  } catch (const Error &error) {
    if (result.outcome == Outcome::refused) result.reason = error.text;
  }
  if (given.node_count == 1) check_slopes_of(*trial, result);
  return result;
}

}  // namespace

Result run(const Case &given) {
  try {
    return run_all(given);
  } catch (const std::exception &exception) {
    return {.outcome = Outcome::wrong, .reason = exception.what()};
  }
}

}  // namespace protrain::test
