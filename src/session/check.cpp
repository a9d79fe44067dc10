// What `protrain check` prints: whether a model trains, and if not, everything that it lacks.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "grad/training.h"
#include "run/kernels.h"
#include "session/dims.h"
#include "session/loaded_model.h"
#include "session/session.h"
#include "session/site.h"

namespace protrain::session {

namespace {

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
    for (std::size_t d = 0; d + (classes ? 1 : 0) < output->dims->size(); ++d) {
      const onnx_import::Dim &dim = (*output->dims)[d];
      const auto *name = std::get_if<std::string>(&dim);
      if (name == nullptr)
        dims.push_back(std::get<std::int64_t>(dim));
      else
        dims.push_back(std::ranges::find(bound, *name) != bound.end() ? Json(*name) : Json());
    }
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
  using By = SettledDim::By;
  onnx_import::DimBindings dims = dim_bindings(options);
  const std::map<std::string, SettledDim> settled = settle_dims(model, dims);
  for (const std::string &name : model.symbolic_dims()) {
    const SettledDim &dim = settled.at(name);
    dims[name] = dim.value;
    json["dims"][name] = {{"value", dim.value},
                          {"default", dim.by != By::option},
                          {"inferred", dim.by == By::inference},
                          {"reason", dim.reason}};
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
  json["unmatched"] = prepared.unmatched;
  for (const passes::Finding &finding : prepared.findings) {
    Json row = {{"name", finding.initializer}, {"reason", finding.reason}, {"evidence", name_of(finding.evidence)}};
    if (!finding.doubt.empty()) {
      const char *verdict = !finding.parameter ? "constant" : finding.frozen ? "frozen" : "trained";
      json["doubtful"].push_back({{"name", finding.initializer},
                                  {"verdict", verdict},
                                  {"doubt", finding.doubt},
                                  {"settled_by", finding.is_initializer ? "option" : "export"}});
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

// Every key that a whole answer has, so that readers need not ask which are there.
Json empty_answer(const std::string &model_path) {
  return {{"model", model_path},
          {"trainable", false},
          {"problems", Json::array()},
          {"unseen_nodes", 0},
          {"inputs", Json::array()},
          {"dims", Json::object()},
          {"device", Json()},
          {"operators", Json::object()},
          {"blocks", 0},
          {"parameters", Json::array()},
          {"constants", Json::array()},
          {"doubtful", Json::array()},
          {"unmatched", Json::array()},
          {"parameter_elements", 0},
          {"loss", Json()},
          {"loss_from", ""}};
}

void add_problem(Json &json, const Error &error, const std::string &text, const std::vector<std::string> &nodes = {}) {
  json["problems"].push_back({{"code", static_cast<int>(error.code)},
                              {"subject", nodes.empty() ? error.subject : nodes.front()},
                              {"text", text},
                              {"nodes", nodes}});
}

// The model of a file that can be read; none, and a problem, where it says what nothing here trains.
std::unique_ptr<onnx_import::Model> open_model(const std::string &path, Json &json) {
  try {
    return onnx_import::Model::open(path);
  } catch (const Error &error) {
    if (error.code != Code::unsupported && error.code != Code::shape && error.code != Code::type) throw;
    add_problem(json, error, error.text);
    return nullptr;
  }
}

void look_at(const Options &options, std::unique_ptr<onnx_import::Model> file, const onnx_import::DimBindings &dims,
             backend::Device &device, Json &json) {
  try {
    LoadedModel loaded = load_model(options, std::move(file), dims);
    describe_graph(loaded.prepared, json);
    json["loss"] = loaded.prepared.graph.value(loaded.loss).name;
    json["loss_from"] = loaded.prepared.loss_from;
    const grad::Training training = grad::build(std::move(loaded.prepared.graph), loaded.loss);
    run::Kernels(device).compile(training.graph);
    json["trainable"] = true;
  } catch (const passes::Untrainable &error) {
    for (const passes::Problem &problem : error.problems) add_problem(json, error, problem.text(), problem.nodes);
    json["unseen_nodes"] = error.behind;
  } catch (const Error &error) {
    if (error.code == Code::nomem) throw;  // no fault of the model's
    add_problem(json, error, error.text);
  }
}

}  // namespace

std::string check_model(const Options &options, const std::string &model_path) {
  Json json = empty_answer(model_path);
  const std::unique_ptr<backend::Device> device = open_device(options);
  json["device"] = {{"name", device->info().name}, {"description", device->info().description}};
  if (std::unique_ptr<onnx_import::Model> file = open_model(model_path, json)) {
    json["inputs"] = inputs_json(*file, loss_of(options));
    const onnx_import::DimBindings dims = bind_all(options, *file, json);
    look_at(options, std::move(file), dims, *device, json);
  }
  return json.dump(1);
}

}  // namespace protrain::session
