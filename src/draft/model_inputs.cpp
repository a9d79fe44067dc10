#include "draft/model_inputs.h"

#include <algorithm>

namespace protrain::draft {

namespace {

bool has(const std::vector<ModelInput> &inputs, const std::string &name) {
  return std::ranges::find(inputs, name, &ModelInput::name) != inputs.end();
}

// Returns the output that the loss is computed from, or nullptr if the file declares no such output.
const onnx_import::Output *output_of(const onnx_import::Model &model, const passes::Loss &loss) {
  const auto fits = [&](const onnx_import::Output &output) {
    if (!loss.output.empty()) return output.name == loss.output;
    return (output.dtype == DType::none || is_float(output.dtype)) && (!output.dims || !output.dims->empty());
  };
  const auto output = std::ranges::find_if(model.outputs(), fits);
  return output == model.outputs().end() ? nullptr : &*output;
}

ModelInput labels_of(const onnx_import::Model &model, const passes::Loss &loss) {
  using enum passes::Loss::Kind;
  const bool classes = loss.kind == cross_entropy || loss.kind == dpo || loss.kind == ctc;
  ModelInput labels{{.name = loss.labels, .dtype = classes ? DType::i64 : DType::f32, .dims = {}}};
  const onnx_import::Output *output = output_of(model, loss);
  labels.has_dims = output != nullptr && output->dims && !output->dims->empty();
  if (!labels.has_dims) return labels;
  const std::vector<std::string> bound = model.symbolic_dims();
  labels.dims = *output->dims;
  if (classes) {
    const auto rank = static_cast<std::int64_t>(labels.dims.size());
    const std::int64_t axis = loss.class_axis < 0 ? loss.class_axis + rank : loss.class_axis;
    labels.dims.erase(labels.dims.begin() + std::clamp<std::int64_t>(axis, 0, rank - 1));
  }
  if (loss.kind == ctc && labels.dims.size() == 2) {
    if (loss.time_first) std::swap(labels.dims[0], labels.dims[1]);
    if (loss.label_length > 0) labels.dims[1] = loss.label_length;
  }
  for (onnx_import::Dim &dim : labels.dims)
    if (const auto *name = std::get_if<std::string>(&dim))
      if (std::ranges::find(bound, *name) == bound.end()) dim = kUnknownDim;
  return labels;
}

void add_inputs_of(const onnx_import::Model &model, const passes::Loss &loss, std::vector<ModelInput> &inputs) {
  using enum passes::Loss::Kind;
  if (loss.kind == triplet || loss.kind == infonce || loss.kind == mean) return;
  const ModelInput labels = labels_of(model, loss);
  if (!has(inputs, loss.labels)) inputs.push_back(labels);
  const auto add = [&](const std::string &name, std::size_t axes, DType dtype = DType::f32) {
    if (has(inputs, name)) return;
    ModelInput input = labels;
    input.name = name;
    input.dtype = dtype;
    input.dims.resize(std::min(axes, labels.dims.size()), kUnknownDim);
    inputs.push_back(std::move(input));
  };
  if (!loss.weights.empty()) add(loss.weights, labels.dims.size());
  if (loss.kind == dpo) add(loss.reference, 1);
  if (!loss.lengths.empty()) add(loss.lengths, 1, DType::i64);
}

}  // namespace

std::vector<ModelInput> inputs_of(const onnx_import::Model &model, const Settings &settings) {
  std::vector<ModelInput> inputs;
  for (const onnx_import::Input &input : model.inputs())
    if (!settings.constants.contains(input.name)) inputs.push_back({input});
  for (const passes::Loss &loss : settings.losses) add_inputs_of(model, loss, inputs);
  if (!settings.packed.empty() && !has(inputs, settings.packed))
    inputs.push_back({{.name = settings.packed, .dtype = DType::i64, .dims = {}}, false});
  return inputs;
}

bool has_no_elements(const ModelInput &input, const onnx_import::DimBindings &dims) {
  return std::ranges::any_of(input.dims, [&](const onnx_import::Dim &dim) {
    if (const auto *size = std::get_if<std::int64_t>(&dim)) return *size == 0;
    const auto bound = dims.find(std::get<std::string>(dim));
    return bound != dims.end() && bound->second == 0;
  });
}

std::vector<ModelInput> inputs_of(const onnx_import::Model &model, const graph::Graph &prepared) {
  std::vector<ModelInput> inputs;
  for (const onnx_import::Input &input : model.inputs()) {
    const graph::ValueId id = prepared.find(input.name);
    if (std::ranges::find(prepared.inputs, id) != prepared.inputs.end()) inputs.push_back({input});
  }
  for (graph::ValueId id : prepared.inputs) {
    const graph::Value &value = prepared.value(id);
    if (has(inputs, value.name)) continue;
    ModelInput &input = inputs.emplace_back(ModelInput{{.name = value.name, .dtype = value.type.dtype, .dims = {}}});
    input.dims.assign(value.type.shape.begin(), value.type.shape.end());
  }
  return inputs;
}

}  // namespace protrain::draft
