#include "session/checked_gradients.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "session/gradient_check.h"

namespace protrain::session {

namespace {

using graph::Array;
using graph::Node;
using graph::NodeId;
using graph::ValueId;

// Watches a run and copies the gradient of each parameter just before the first node reads it.
class GradientReader final : public run::Watch {
 public:
  GradientReader(const grad::Training &training, const program::Program &program, run::Store &store)
      : training_(training), program_(program), store_(store), gradients_(training.gradients.size()) {}

  void before(std::size_t i) override {
    const program::Instruction &instruction = program_.instructions[i];
    if (instruction.kind != program::Kind::run) return;
    const Node &node = training_.graph.node(instruction.node);
    for (std::size_t k = 0; k < node.inputs.size(); ++k)
      for (std::size_t p = 0; p < gradients_.size(); ++p)
        if (node.inputs[k] != ValueId::none && node.inputs[k] == training_.gradients[p] && gradients_[p].empty())
          gradients_[p] = read(instruction.inputs[k], training_.graph.value(node.inputs[k]).type);
  }
  void after(std::size_t) override {}

  // Returns the gradient of the parameter at this position; empty if it is not trained.
  const std::vector<double> &of(std::size_t parameter) const { return gradients_[parameter]; }

 private:
  std::vector<double> read(const program::Operand &at, const graph::Type &type) const {
    std::vector<std::byte> bytes(byte_count(type.dtype, type.shape));
    store_.read(program_.buffers[index(at.buffer)], at.offset, bytes.data(), bytes.size());
    return Array::dense(type, std::move(bytes)).doubles();
  }

  const grad::Training &training_;
  const program::Program &program_;
  run::Store &store_;
  std::vector<std::vector<double>> gradients_;
};

// Returns the values that a step computes with: all inputs, and all parameters in float64. Throws Code::unsupported if
// a parameter is quantised.
std::map<ValueId, Array> values_of(Machine &machine, std::size_t variant) {
  const graph::Graph &graph = machine.draft().variants[variant]->training.graph;
  const program::State &state = machine.draft().programs.state;
  std::map<ValueId, Array> values;
  for (const ValueId id : graph.inputs) {
    const auto &type = graph.value(id).type;
    std::vector<std::byte> bytes(byte_count(type.dtype, type.shape));
    machine.store().read(state.buffers[index(state.of_value[variant].at(id))], 0, bytes.data(), bytes.size());
    values[id] = Array::dense(type, std::move(bytes));
  }
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::Value &value = graph.value(graph.parameters[p]);
    require(is_float(value.type.dtype), Code::unsupported, value.name,
            "{} is quantised; gradients are checked for models of floats", value.name);
    const graph::Type read{value.type.dtype == DType::f64 ? DType::f64 : DType::f32, value.type.shape};
    std::vector<std::byte> bytes(byte_count(read.dtype, read.shape));
    machine.parameters().read(p, 0, 0, bytes);
    values[graph.parameters[p]] =
        Array::from_doubles({DType::f64, read.shape}, Array::dense(read, std::move(bytes)).doubles());
  }
  return values;
}

// Returns the largest relative error of a gradient that rounding in this precision can explain.
double tolerance_of(DType precision) { return precision == DType::f32 ? 1e-3 : 0.1; }

// The unit of rounding: the largest relative error that rounding one number to this precision makes.
double rounding_of(DType precision) {
  if (precision == DType::f32) return 0x1p-24;
  return precision == DType::f16 ? 0x1p-11 : 0x1p-8;
}

// Returns the limits for gradients whose true value may be zero, such as the gradient of a bias of attention's keys, or
// of a bias before a BatchNormalization. The terms of such a gradient cancel each other, so only their rounding errors
// are left. No term is much larger than `largest`, the largest gradient of the model. So an error of four units of
// rounding, relative to `largest`, is allowed (`size`).
//   In 16 bits, many true gradients are smaller than this error. So the error is allowed only for a gradient whose
// derivatives by finite differences are below 1e-4 of `largest` (`slope`). An example is the gradient of a scale before
// a normalization: because of the normalization's epsilon, its derivatives are about 1e-5 of `largest`.
GradientCheck::Small small_beside(double largest, DType precision) {
  const double rounding = 4 * rounding_of(precision) * largest;
  return {.slope = 1e-4 * largest, .size = rounding / tolerance_of(precision)};
}

bool is_finite(const std::vector<double> &gradient) {
  return std::ranges::all_of(gradient, [](double value) { return std::isfinite(value); });
}

// Returns the factor by which the gradients of a step that has just run are too large: the loss scale, times the weight
// of a micro-batch.
double factor_of(Machine &machine, const CheckedStep &step, const program::Program &program) {
  const double scale = machine.draft().scales_loss() ? step.scalars.loss_scale : 1;
  if (program.weight == program::BufferId::none) return scale;
  double weight = 0;
  machine.read_result(program, program.weight, &weight, sizeof weight);
  return scale * weight;
}

Json result_json(const std::string &name, const GradientCheck::Result &result, bool passed) {
  return {{"name", name},
          {"norm", result.norm},
          {"elements", result.elements},
          {"kinks", result.kinks},
          {"element_error", result.worst_element},
          {"direction_error", result.direction},
          {"passed", passed}};
}

}  // namespace

std::string check_gradients(Machine &machine, const CheckedStep &step, std::size_t samples,
                            const std::atomic<bool> &cancelled) {
  const draft::Draft &draft = machine.draft();
  const grad::Training &training = draft.variants[step.variant]->training;
  const program::Program &program = draft.programs.variants[step.variant].step;
  const GradientCheck check(training, values_of(machine, step.variant), cancelled);
  machine.set_status(program::StatusWord::loss());  // so that Updates change nothing
  machine.set_held(false);
  GradientReader reader(training, program, machine.store());
  machine.executors(step.variant).step->run_watched(step.scalars, reader);
  const double factor = factor_of(machine, step, program);
  float loss = 0;
  machine.read_result(program, program.loss, &loss, sizeof loss);
  const double tolerance = tolerance_of(draft.settings.precision);
  Json json = {{"loss", loss}, {"loss_float64", check.loss()}, {"tolerance", tolerance}};
  double largest = 0;
  for (std::size_t p = 0; p < training.gradients.size(); ++p)
    if (!reader.of(p).empty() && is_finite(reader.of(p)))
      largest = std::max(largest, root_mean_square(reader.of(p)) / std::abs(factor));
  const GradientCheck::Small small = small_beside(largest, draft.settings.precision);
  bool passed = true;
  json["parameters"] = Json::array();
  for (std::size_t p = 0; p < training.gradients.size(); ++p) {
    std::vector<double> gradient = reader.of(p);
    if (gradient.empty()) continue;
    for (double &value : gradient) value /= factor;
    const GradientCheck::Result result = check.compare(training.graph.parameters[p], gradient, samples, small);
    const bool good = is_finite(gradient) && std::max(result.worst_element, result.direction) <= tolerance;
    passed = passed && good;
    json["parameters"].push_back(result_json(machine.parameters().name(p), result, good));
  }
  json["passed"] = passed;
  return json.dump(1);
}

}  // namespace protrain::session
