// What `protrain check` prints: whether a model trains, and if not, everything that it lacks.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "grad/training.h"
#include "run/kernels.h"
#include "session/loaded_model.h"
#include "session/session.h"
#include "session/site.h"

namespace protrain::session {

namespace {

using Json = nlohmann::ordered_json;

// For dims that nobody bound: large enough that shapes are honest, small enough that nothing costs anything.
constexpr std::int64_t kDefaultBatch = 2;
constexpr std::int64_t kDefaultDim = 16;

// The input that an attached loss adds, as far as the file tells it: null stands for dims that follow from others.
Json labels_json(const onnx_import::Model &model, const passes::Loss &loss) {
  const bool classes = loss.kind == passes::Loss::Kind::cross_entropy;
  const auto fits = [&](const onnx_import::Output &output) {
    if (!loss.output.empty()) return output.name == loss.output;
    return (output.dtype == DType::none || is_float(output.dtype)) && (!output.dims || !output.dims->empty());
  };
  const auto output = std::ranges::find_if(model.outputs(), fits);
  Json dims;
  if (output != model.outputs().end() && output->dims && !output->dims->empty()) {
    const std::vector<std::string> bound = model.symbolic_dims();
    dims = Json::array();
    for (const onnx_import::Dim &dim : *output->dims) {
      const auto *name = std::get_if<std::string>(&dim);
      if (name == nullptr)
        dims.push_back(std::get<std::int64_t>(dim));
      else
        dims.push_back(std::ranges::find(bound, *name) != bound.end() ? Json(*name) : Json());
    }
    if (classes) dims.erase(dims.size() - 1);
  }
  return {{"name", loss.labels}, {"dtype", name_of(classes ? DType::i64 : DType::f32)}, {"dims", dims}};
}

Json inputs_json(const onnx_import::Model &model, const std::optional<passes::Loss> &loss) {
  Json inputs = Json::array();
  for (const onnx_import::Input &input : model.inputs()) {
    Json dims = Json::array();
    for (const auto &dim : input.dims) std::visit([&](const auto &d) { dims.push_back(d); }, dim);
    inputs.push_back({{"name", input.name}, {"dtype", name_of(input.dtype)}, {"dims", dims}});
  }
  const auto is_labels = [&](const onnx_import::Input &input) { return input.name == loss->labels; };
  if (loss && std::ranges::none_of(model.inputs(), is_labels)) inputs.push_back(labels_json(model, *loss));
  return inputs;
}

onnx_import::DimBindings bind_all(const Options &options, const onnx_import::Model &model, Json &json) {
  onnx_import::DimBindings dims = dim_bindings(options);
  json["dims"] = Json::object();
  for (const std::string &name : model.symbolic_dims()) {
    const bool bound = dims.contains(name);
    if (!bound) dims[name] = name.find("batch") != std::string::npos ? kDefaultBatch : kDefaultDim;
    json["dims"][name] = {{"value", dims[name]}, {"default", !bound}};
  }
  return dims;
}

void describe_graph(const passes::Prepared &prepared, Json &json) {
  const graph::Graph &graph = prepared.graph;
  std::map<std::string, int> operators;
  for (const graph::Node &node : graph.nodes()) ++operators[node.op];
  json["operators"] = operators;
  json["blocks"] = prepared.block_count;
  std::int64_t elements = 0;
  json["parameters"] = json["constants"] = json["doubtful"] = Json::array();
  json["unmatched"] = prepared.unmatched;
  for (const passes::Finding &finding : prepared.findings) {
    Json row = {{"name", finding.initializer}, {"reason", finding.reason}, {"evidence", name_of(finding.evidence)}};
    if (!finding.doubt.empty()) {
      const char *verdict = !finding.parameter ? "constant" : finding.frozen ? "frozen" : "trained";
      json["doubtful"].push_back({{"name", finding.initializer}, {"verdict", verdict}, {"doubt", finding.doubt}});
    }
    if (const graph::ValueId id = graph.find(finding.initializer); finding.parameter && id != graph::ValueId::none) {
      const graph::Type &type = graph.value(id).type;
      row["shape"] = type.shape;
      row["frozen"] = finding.frozen;
      elements += element_count(type.shape);
    }
    json[finding.parameter ? "parameters" : "constants"].push_back(std::move(row));
  }
  json["parameter_elements"] = elements;
}

}  // namespace

std::string check_model(const Options &options, const std::string &model_path) {
  Json json = {{"model", model_path}, {"trainable", false}, {"problems", Json::array()}};
  std::unique_ptr<onnx_import::Model> file = onnx_import::Model::open(model_path);
  json["inputs"] = inputs_json(*file, loss_of(options));
  const onnx_import::DimBindings dims = bind_all(options, *file, json);
  const std::unique_ptr<backend::Device> device = open_device(options);
  json["device"] = {{"name", device->info().name}, {"description", device->info().description}};
  try {
    LoadedModel loaded = load_model(options, std::move(file), dims);
    describe_graph(loaded.prepared, json);
    json["loss"] = loaded.prepared.graph.value(loaded.loss).name;
    const grad::Training training = grad::build(std::move(loaded.prepared.graph), loaded.loss);
    run::Kernels(*device).compile(training.graph);
    json["trainable"] = true;
  } catch (const Error &error) {
    json["problems"].push_back(
        {{"code", static_cast<int>(error.code)}, {"subject", error.subject}, {"text", error.text}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace protrain::session
