#include "draft/check.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "base/sentence.h"
#include "draft/alarms.h"
#include "draft/dims.h"
#include "draft/loaded_model.h"
#include "draft/past.h"
#include "draft/settings.h"
#include "draft/target_machine.h"
#include "grad/training.h"
#include "ops/op.h"
#include "passes/parameters/stored.h"
#include "run/kernels.h"

namespace protrain::draft {

namespace {

Json inputs_json(const std::vector<ModelInput> &inputs) {
  Json json = Json::array();
  for (const ModelInput &input : inputs) {
    Json dims = input.has_dims ? Json::array() : Json();
    for (const onnx_import::Dim &dim : input.dims) {
      if (dim == kUnknownDim)
        dims.push_back(Json());
      else
        std::visit([&](const auto &d) { dims.push_back(d); }, dim);
    }
    json.push_back({{"name", input.name}, {"dtype", name_of(input.dtype)}, {"dims", dims}});
  }
  return json;
}

// Returns the inputs that need values. Leaves out inputs that the graph does not have: inputs without elements, and
// inputs for earlier tokens that nothing reads. An input with a wrong number of dims, such as labels can have, gets the
// shape that it has in the graph.
std::vector<ModelInput> wanted(std::vector<ModelInput> inputs, const graph::Graph &graph) {
  std::erase_if(inputs, [&](const ModelInput &input) {
    return std::ranges::find(graph.inputs, graph.find(input.name)) == graph.inputs.end();
  });
  for (ModelInput &input : inputs) {
    const Shape &shape = graph.value(graph.find(input.name)).type.shape;
    if (input.has_dims && input.dims.size() != shape.size()) input.dims.assign(shape.begin(), shape.end());
  }
  return inputs;
}

Json training_json(const graph::FileTraining &training) {
  Json options = Json::object();
  for (const auto &[key, value] : training.options) options[key] = value;
  return {{"source", training.source}, {"loss", training.loss}, {"options", options}, {"steps", training.steps}};
}

Json batch_json(const Batch &batch) {
  return {{"input", batch.input},
          {"dim", batch.dim},
          {"samples", batch.samples},
          {"tokens_per_sample", batch.tokens_per_sample}};
}

onnx_import::DimBindings bind_all(const Settings &settings, const onnx_import::Model &model, Json &json) {
  using By = DimSize::By;
  onnx_import::DimBindings dims = settings.dims;
  if (settings.without_past) bind_past(model, dims);
  const std::map<std::string, DimSize> settled = settle_dims(model, dims, settings.constants);
  for (const std::string &name : model.symbolic_dims()) {
    const DimSize &dim = settled.at(name);
    dims[name] = dim.value;
    json["dims"][name] = {{"value", dim.value},
                          {"default", dim.by != By::option},
                          {"inferred", dim.by == By::inference},
                          {"reason", dim.reason}};
  }
  return dims;
}

const char *verdict_of(const passes::Finding &finding) {
  if (!finding.parameter) return "constant";
  return finding.frozen ? "frozen" : "trained";
}

// Returns the key of the list that the finding belongs to.
const char *list_of(const passes::Finding &finding) {
  if (finding.state) return "states";
  return finding.parameter ? "parameters" : "constants";
}

struct ElementCounts {
  std::int64_t all = 0, trained = 0;
};

// Adds to a parameter's row what the graph knows about the parameter: shape, element type at rest, and whether it is
// trained.
void describe_parameter(const passes::Finding &finding, const LoadedModel &loaded, Json &row, ElementCounts &counts) {
  const graph::Graph &graph = loaded.prepared.graph;
  const graph::ValueId id = graph.find(finding.initializer);
  if (id == graph::ValueId::none) return;
  const graph::Type &type = graph.value(id).type;
  const auto rounded = std::ranges::find(loaded.rounded, finding.initializer, &passes::RoundedMatrix::parameter);
  const bool is_rounded = rounded != loaded.rounded.end();
  const Shape &shape = is_rounded ? rounded->shape : type.shape;
  row["shape"] = shape;
  row["dtype"] = name_of(finding.frozen ? type.dtype : DType::f32);  // a trained one has masters of float32
  if (is_rounded && rounded->rounding->block > 0) row["dtype"] = rounded->rounding->name;
  counts.all += element_count(shape);
  if (finding.state) return;
  row["frozen"] = finding.frozen;
  if (!finding.frozen) counts.trained += element_count(shape);
}

void describe_graph(const LoadedModel &loaded, Json &json) {
  const passes::PreparedModel &prepared = loaded.prepared;
  std::map<std::string, int> operators;
  for (const graph::Node &node : prepared.graph.nodes()) ++operators[node.op];
  json["operators"] = operators;
  json["blocks"] = prepared.block_count;
  if (prepared.had_doubles) json["replaced_floats"].push_back(name_of(DType::f64));
  json["unmatched"] = prepared.unmatched;
  ElementCounts counts;
  for (const passes::Finding &finding : prepared.findings) {
    Json row = {{"name", finding.initializer}, {"reason", finding.reason}, {"evidence", name_of(finding.evidence)}};
    if (!finding.doubt.empty())
      json["doubtful"].push_back({{"name", finding.initializer},
                                  {"verdict", verdict_of(finding)},
                                  {"doubt", finding.doubt},
                                  {"settled_by", finding.is_initializer ? "option" : "export"}});
    if (finding.parameter) describe_parameter(finding, loaded, row, counts);
    json[list_of(finding)].push_back(std::move(row));
  }
  json["parameter_elements"] = counts.all;
  json["trained_elements"] = counts.trained;
  for (const passes::Adapter &adapter : prepared.adapters)
    json["adapters"].push_back({{"parameter", adapter.parameter},
                                {"module", adapter.module},
                                {"rank", adapter.request.rank},
                                {"scale", adapter.request.scale()},
                                {"places", adapter.places}});
}

// Returns an answer with every key, so that readers need not ask which keys exist.
Json empty_answer(const std::string &model_path) {
  return {{"model", model_path},
          {"files", Json::array()},
          {"trainable", false},
          {"problems", Json::array()},
          {"unseen_nodes", 0},
          {"inputs", Json::array()},
          {"replaced_floats", Json::array()},
          {"dims", Json::object()},
          {"batch", Json()},
          {"device", Json()},
          {"operators", Json::object()},
          {"blocks", 0},
          {"parameters", Json::array()},
          {"states", Json::array()},
          {"constants", Json::array()},
          {"doubtful", Json::array()},
          {"unmatched", Json::array()},
          {"training", Json()},
          {"parameter_elements", 0},
          {"trained_elements", 0},
          {"adapters", Json::array()},
          {"loss", Json()},
          {"loss_is_cross_entropy", false},
          {"loss_from", ""},
          {"alarms", Json::array()}};
}

void add_problem(Json &json, const Error &error, const std::string &text, const std::vector<std::string> &nodes = {}) {
  json["problems"].push_back({{"code", static_cast<int>(error.code)},
                              {"subject", nodes.empty() ? error.subject : nodes.front()},
                              {"text", text},
                              {"nodes", nodes}});
}

// Opens the model's file. Returns nullptr and adds a problem if this library does not support something in the file.
std::unique_ptr<onnx_import::Model> open_model(const std::string &path, Json &json) {
  try {
    return onnx_import::Model::open(path);
  } catch (const Error &error) {
    if (error.code != Code::unsupported && error.code != Code::shape && error.code != Code::type) throw;
    add_problem(json, error, sentence_about(error.subject, error.text));
    return nullptr;
  }
}

// Returns the loss's name in the file. There the loss may have axes, and a number of another name takes its place.
std::string loss_name(const LoadedModel &loaded) {
  const std::string &name = loaded.prepared.graph.value(loaded.loss).name;
  const auto is_loss = [&](const onnx_import::Output &output) { return passes::name_of_number(output.name) == name; };
  const auto found = std::ranges::find_if(loaded.file->outputs(), is_loss);
  return found == loaded.file->outputs().end() ? name : found->name;
}

// True if the loss is the mean cross entropy of labels, with no weights and no further terms.
bool is_cross_entropy(const graph::Graph &graph, graph::ValueId loss) {
  graph::NodeId made_by = graph.value(loss).producer;
  while (made_by != graph::NodeId::none && ops::is_alias(graph.node(made_by)))
    made_by = graph.value(graph.node(made_by).inputs.at(0)).producer;
  if (made_by == graph::NodeId::none) return false;
  const graph::Node &node = graph.node(made_by);
  const bool linear = node.op == "LinearCrossEntropy";
  if (!linear && node.op != "CrossEntropy") return false;
  const std::size_t labels = linear ? 2 : 1, weights = linear ? 4 : 2;
  const auto is_off = [&](const char *term) { return node.attributes.real(term, 0) == 0; };
  const graph::Value &targets = graph.value(node.inputs.at(labels));
  return is_integer(targets.type.dtype) && targets.origin != graph::Origin::constant &&  // infonce numbers its rows
         (node.inputs.size() <= weights || node.inputs[weights] == graph::ValueId::none) &&
         node.attributes.text("reduction", "mean") == "mean" && node.attributes.real("temperature", 1) == 1 &&
         is_off("label_smoothing") && is_off("z_loss") && is_off("focal");
}

void look_at(Settings settings, const Options &options, std::unique_ptr<onnx_import::Model> file,
             const onnx_import::DimBindings &dims, backend::Device &device, Json &json) {
  try {
    take_declared(settings, options, file->declared());
    LoadedModel loaded = load_model(settings, std::move(file), dims);
    json["inputs"] = inputs_json(wanted(inputs_of(*loaded.file, settings), loaded.prepared.graph));
    describe_graph(loaded, json);
    json["loss"] = loss_name(loaded);
    json["loss_is_cross_entropy"] = is_cross_entropy(loaded.prepared.graph, loaded.loss);
    json["loss_from"] = loaded.prepared.loss_from;
    const ParameterGroups groups =
        parameter_groups(settings.groups, settings.optimizer.weight_decay, loaded.prepared.graph);
    graph::Graph graph = std::move(loaded.prepared.graph);
    if (settings.trains) {
      grad::Training training = grad::build(std::move(graph), loaded.loss);
      settings.dims = dims;
      json["alarms"] =
          alarms_json(find_alarms({settings, *loaded.file, loaded.prepared.findings, training, groups, {}}));
      graph = std::move(training.graph);
    }
    passes::widen_inside(graph);
    run::Kernels(device).compile(graph);
    json["trainable"] = true;
  } catch (const passes::Untrainable &error) {
    for (const passes::Problem &problem : error.problems) add_problem(json, error, problem.text(), problem.nodes);
    json["unseen_nodes"] = error.behind;
  } catch (const Error &error) {
    if (error.code == Code::nomem) throw;  // not the model's fault
    add_problem(json, error, sentence_about(error.subject, error.text));
  }
}

}  // namespace

std::string check_model(const Options &options, const std::string &model_path) {
  const Settings settings = settings_of(options);
  Json json = empty_answer(model_path);
  const std::unique_ptr<backend::Device> device = open_device(settings);
  json["device"] = {{"name", device->info().name}, {"description", device->info().description}};
  if (std::unique_ptr<onnx_import::Model> file = open_model(model_path, json)) {
    json["files"] = file->files();
    if (file->declared().training) json["training"] = training_json(*file->declared().training);
    for (const DType dtype : file->replaced_floats()) json["replaced_floats"].push_back(name_of(dtype));
    const onnx_import::DimBindings dims = bind_all(settings, *file, json);
    const std::vector<ModelInput> inputs = inputs_of(*file, settings);
    json["inputs"] = inputs_json(inputs);
    json["batch"] = batch_json(batch_of(inputs, dims));
    look_at(settings, options, std::move(file), dims, *device, json);
  }
  return json.dump(1);
}

}  // namespace protrain::draft
