#include "draft/loaded_model.h"

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "draft/parameter_list.h"
#include "draft/past.h"
#include "draft/shown_outputs.h"
#include "passes/attach_loss.h"
#include "passes/parameters/stored.h"

namespace protrain::draft {

namespace {

// Drops outputs that only take memory. If the loss is one of several outputs, only the loss and the last `shown`
// outputs stay. Otherwise all outputs stay.
void keep_loss_output(graph::Graph &graph, const std::string &name, std::size_t shown) {
  const auto is_loss = [&](graph::ValueId id) { return graph.value(id).name == name; };
  const auto found = std::ranges::find_if(graph.outputs, is_loss);
  if (graph.outputs.size() > 1 && found != graph.outputs.end()) passes::keep_outputs(graph, {*found}, shown);
}

graph::ValueId find_loss(const graph::Graph &graph) {
  std::string found;
  for (graph::ValueId id : graph.outputs) {
    const graph::Value &value = graph.value(id);
    if (value.type.dtype == DType::f32 && passes::may_be_loss(value.type)) return id;
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", value.name, to_text(value.type));
  }
  fail(Code::graph, "loss",
       "the model has no scalar float32 output that would be its loss, only {}; set the option loss "
       "(loss=cross_entropy for logits, and loss_shift=1 if they are a language model's), or export it with its loss",
       found.empty() ? "none at all" : found);
}

void require_samples(const Settings &settings, const onnx_import::Model &model, const onnx_import::DimBindings &dims) {
  const std::vector<ModelInput> inputs = inputs_of(model, settings);
  const std::string counted = batch_of(inputs, dims).input;
  for (const ModelInput &input : inputs)
    require(input.name != counted || !has_no_elements(input, dims), Code::shape, input.name,
            "has no elements as its dims are bound; a step needs at least one sample and one token");
}

// Returns the modules that the file of adapter_names gives to initializers. Throws Code::arg if the model lacks one of
// the initializers.
passes::ModuleNames modules_by_option(const std::string &path, const graph::Graph &graph) {
  if (path.empty()) return {};
  passes::ModuleNames modules = read_module_names(path);
  for (const auto &[initializer, module] : modules) {
    const graph::ValueId id = graph.find(initializer);
    const graph::Origin origin = id == graph::ValueId::none ? graph::Origin::node : graph.value(id).origin;
    const bool in_file = origin == graph::Origin::initializer || origin == graph::Origin::constant;
    require(
        in_file, Code::arg, printable(initializer),
        "{} names it, and the model has no such initializer; take the line out, or put the initializer's name there",
        path);
  }
  return modules;
}

// Returns the names of outputs that count as losses without axes although they have axes: the loss that the file's
// training names, and each output whose dims are all 1 in the file, such as a loss of older versions of Paddle, or one
// whose mean kept its axes. If the input that counts samples takes one sample alone, an axis of such an output may be
// that of samples, so no declared output counts.
std::set<std::string> numbers_of(const onnx_import::Model &file, const Settings &settings,
                                 const onnx_import::DimBindings &dims) {
  std::set<std::string> names;
  const auto is_one = [](const onnx_import::Dim &dim) { return dim == onnx_import::Dim(std::int64_t{1}); };
  const std::vector<ModelInput> inputs = inputs_of(file, settings);
  const auto counted = std::ranges::find(inputs, batch_of(inputs, dims).input, &ModelInput::name);
  const bool one_sample = counted != inputs.end() && !counted->dims.empty() && is_one(counted->dims[0]);
  for (const onnx_import::Output &output : file.outputs())
    if (!one_sample && output.dims && !output.dims->empty() && std::ranges::all_of(*output.dims, is_one))
      names.insert(output.name);
  if (const auto &training = file.declared().training) names.insert(training->loss);
  return names;
}

// Without `settled`, prepares the graph that is trained. With `settled`, prepares a second graph, which computes the
// loss and the outputs that keep_outputs names. `settled` is the model with the first graph.
passes::PreparedModel prepare(const Settings &settings, const LoadedModel &model, const onnx_import::DimBindings &dims,
                              const passes::PreparedModel *settled = nullptr) {
  const onnx_import::Model &file = *model.file;
  graph::Graph graph = file.graph(dims, settings.constants);
  std::vector<passes::Loss> losses = settings.losses;
  std::vector<graph::ValueId> shown;
  if (settled != nullptr) {
    const ShownOutputs all = shown_outputs(graph, settings);
    if (!losses.empty()) losses.front().shows_log_probabilities = all.log_probabilities;
    shown = all.of_file;
  }
  graph.outputs.insert(graph.outputs.end(), shown.begin(), shown.end());
  const auto &training = file.declared().training;
  if (losses.empty())
    keep_loss_output(graph, training && !training->loss.empty() ? training->loss : "loss", shown.size());
  const auto load = [&](const std::string &name) { return file.load(name); };
  const passes::ModuleNames modules = modules_by_option(settings.adapter_names, graph);
  passes::PreparedModel prepared =
      passes::prepare(std::move(graph), load,
                      {.trainable = settings.trainable,
                       .frozen = settings.frozen,
                       .ties = settings.tie,
                       .adapters = model.adapter ? model.adapter->requests() : settings.adapters,
                       .modules = modules,
                       .losses = losses,
                       .packed = settings.packed,
                       .batch_norm = settings.batch_norm,
                       .declared = declarations_of(settings.parameters_from, file),
                       .bodies = &file.bodies(),
                       .numbers = numbers_of(file, settings, dims),
                       .shown = shown.size(),
                       .settled = settled});
  if (settings.without_past) drop_unread_past(file, prepared.graph);
  return prepared;
}

// Gives values the types in which a step computes them, and gives frozen weights the types in which they rest.
void settle_types(passes::PreparedModel &prepared, const Settings &settings, LoadedModel &loaded) {
  const bool first = &prepared == &loaded.prepared;  // the graph that is trained
  if (settings.precision != DType::f32)
    passes::to_narrow(prepared.graph, find_loss(prepared.graph), settings.precision);
  if (first) loaded.rounded = rounded_weights(prepared.graph, settings);
  passes::store_frozen(prepared.graph, [&](const std::string &name) {
    if (std::ranges::find(loaded.rounded, name, &passes::RoundedMatrix::parameter) != loaded.rounded.end())
      return DType::f32;
    const auto split = std::ranges::find(prepared.splits, name, &graph::Split::name);
    return loaded.file->dtype_in_file(split == prepared.splits.end() ? name : split->original);
  });
  passes::round_frozen(prepared.graph, loaded.rounded);
}

// Adds the graph that computes the outputs which keep_outputs names.
void add_outputs(LoadedModel &loaded, const Settings &settings, const onnx_import::DimBindings &dims) {
  const graph::Graph whole = loaded.file->graph(dims, settings.constants);
  loaded.output_names = shown_outputs(whole, settings).names;
  passes::PreparedModel prepared = prepare(settings, loaded, dims, &loaded.prepared);
  settle_types(prepared, settings, loaded);
  show_outputs(prepared, loaded.output_names.size(), loaded.prepared, !settings.trains);
  loaded.outputs = std::move(prepared.graph);
}

}  // namespace

LoadedModel load_model(const Settings &settings, const onnx_import::ModelSource &source,
                       const onnx_import::DimBindings &more) {
  onnx_import::DimBindings dims = more;
  dims.insert(settings.dims.begin(), settings.dims.end());
  std::unique_ptr<onnx_import::Model> file = onnx_import::Model::open(source);
  if (settings.without_past) bind_past(*file, dims);
  require_past_bound(*file, dims);
  return load_model(settings, std::move(file), dims);
}

LoadedModel load_without_loss(const Settings &settings, std::unique_ptr<onnx_import::Model> file,
                              const onnx_import::DimBindings &dims) {
  LoadedModel model{.file = std::move(file), .prepared = {}};
  if (!settings.adapter.empty()) model.adapter = std::make_shared<AdapterFile>(AdapterFile::open(settings.adapter));
  model.prepared = prepare(settings, model, dims);
  if (model.adapter)
    for (passes::Adapter &adapter : model.prepared.adapters) model.adapter->give(adapter);
  return model;
}

LoadedModel load_model(const Settings &settings, std::unique_ptr<onnx_import::Model> file,
                       const onnx_import::DimBindings &dims) {
  require_samples(settings, *file, dims);
  LoadedModel loaded = load_without_loss(settings, std::move(file), dims);
  loaded.batch = batch_of(inputs_of(*loaded.file, loaded.prepared.graph), dims);
  loaded.loss = find_loss(loaded.prepared.graph);
  settle_types(loaded.prepared, settings, loaded);
  if (!settings.keep_outputs.empty()) add_outputs(loaded, settings, dims);
  return loaded;
}

std::vector<passes::RoundedMatrix> rounded_weights(const graph::Graph &graph, const Settings &settings) {
  if (settings.base_precision == nullptr) return {};
  std::vector<passes::RoundedMatrix> rounded = passes::find_rounded(graph, *settings.base_precision);
  require(!rounded.empty(), Code::arg, "base_precision",
          "the model has no frozen weights of floats that base_precision={} could round; set lora or frozen",
          settings.base_precision->name);
  return rounded;
}

std::map<std::string, Tie> ties_of(const std::vector<passes::Finding> &findings) {
  std::map<std::string, Tie> ties;
  for (const passes::Finding &finding : findings)
    if (!finding.tied_to.empty()) ties.emplace(finding.initializer, Tie{finding.tied_to, finding.transposed});
  return ties;
}

}  // namespace protrain::draft
