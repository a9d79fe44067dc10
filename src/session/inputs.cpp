#include "session/inputs.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace protrain::session {

Inputs::Inputs(const draft::Draft &draft)
    : draft_(draft), shapes_(count()), every_input_(count(), true), read_by_outputs_(count()) {
  const graph::Graph &outputs = draft.first().outputs;
  for (const graph::Node &node : outputs.nodes())
    for (std::size_t i = 0; i < count(); ++i)
      if (std::ranges::find(node.inputs, outputs.inputs[i]) != node.inputs.end()) read_by_outputs_[i] = true;
  for (const auto &variant : draft.variants)
    checked_.push_back({IndexChecks(variant->training.graph, variant->forward.inputs), {}});
  for (Checked &checked : checked_) checked.faults.resize(count());
}

std::size_t Inputs::find(const std::string &name) const {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count(); ++i) {
    if (value(i).name == name) return i;
    names.push_back(value(i).name);
  }
  const bool in_file =
      std::ranges::find(draft_.file->inputs(), name, &onnx_import::Input::name) != draft_.file->inputs().end();
  require(!in_file, Code::arg, name, "input {} is bound to a value or nothing reads it; the session's inputs are {}",
          name, fmt::join(names, ", "));
  fail(Code::arg, name, "the model has no input {}; its inputs are {}", name, fmt::join(names, ", "));
}

bool Inputs::is_empty(const std::string &name, const Shape &shape) const {
  const graph::ValueId id = forward().find(name);
  if (id == graph::ValueId::none || element_count(shape) != 0) return false;
  const graph::Value &value = forward().value(id);
  return value.origin == graph::Origin::constant && value.type.shape == shape;
}

DType Inputs::dtype(std::size_t i) const {
  const std::vector<onnx_import::Input> &in_file = draft_.file->inputs();
  const auto found = std::ranges::find(in_file, name(i), &onnx_import::Input::name);
  return found == in_file.end() ? value(i).type.dtype : found->dtype;  // labels are in no file
}

const Shape &Inputs::shape_in(std::size_t variant, std::size_t input) const {
  const graph::Graph &graph = draft_.variants[variant]->forward;
  return graph.value(graph.inputs[input]).type.shape;
}

void Inputs::require_taken(std::size_t i, DType dtype, const Shape &shape) const {
  const DType wanted = this->dtype(i);
  require(dtype == wanted || (is_float(wanted) && dtype == value(i).type.dtype), Code::type, name(i),
          "input {} is {}, not {}", name(i), name_of(wanted), name_of(dtype));
  std::vector<std::string> shapes;
  for (std::size_t v = 0; v < draft_.variants.size(); ++v) {
    if (shape_in(v, i) == shape) return;
    shapes.push_back(to_text(shape_in(v, i)));
  }
  fail(Code::shape, name(i), "input {} has shape {}, not {}; the option shapes gives a session further shapes", name(i),
       fmt::join(shapes, " or "), to_text(shape));
}

void Inputs::note(std::size_t i, const Shape &shape, const void *data) {
  shapes_[i] = shape;
  for (std::size_t v = 0; v < checked_.size(); ++v)
    if (shape_in(v, i) == shape) checked_[v].faults[i] = checked_[v].checks.fault_in(i, data);
}

std::size_t Inputs::variant_for(const std::vector<bool> &needed) const {
  const std::size_t variant = matching_variant(needed);
  const auto &[checks, faults] = checked_[variant];
  for (std::size_t i = 0; i < count(); ++i)
    if (needed[i] && faults[i]) checks.refuse(*faults[i]);
  return variant;
}

std::size_t Inputs::matching_variant(const std::vector<bool> &needed) const {
  for (std::size_t i = 0; i < count(); ++i)
    require(!needed[i] || shapes_[i].has_value(), Code::state, name(i),
            "input {} was never set; call protrain_session_set_input first", name(i));
  for (std::size_t v = 0; v < draft_.variants.size(); ++v) {
    bool fits = true;
    for (std::size_t i = 0; fits && i < count(); ++i) fits = !needed[i] || shape_in(v, i) == *shapes_[i];
    if (fits) return v;
  }
  std::vector<std::string> shapes;
  for (std::size_t i = 0; i < count(); ++i)
    if (needed[i]) shapes.push_back(fmt::format("{} {}", name(i), to_text(*shapes_[i])));
  fail(Code::shape, "shapes", "no binding of the session has {} together", fmt::join(shapes, ", "));
}

}  // namespace protrain::session
