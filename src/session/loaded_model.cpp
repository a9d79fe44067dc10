#include "session/loaded_model.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "session/parameter_list.h"

namespace protrain::session {

namespace {

// Of several outputs the one called "loss" is trained on; the others would only hold memory.
void keep_loss_output(graph::Graph &graph) {
  const auto is_loss = [&](graph::ValueId id) { return graph.value(id).name == "loss"; };
  const auto found = std::ranges::find_if(graph.outputs, is_loss);
  if (graph.outputs.size() > 1 && found != graph.outputs.end()) {
    graph.outputs = {*found};
    graph.drop_dead_nodes();
  }
}

graph::ValueId find_loss(const graph::Graph &graph) {
  std::string found;
  for (graph::ValueId id : graph.outputs) {
    const graph::Value &value = graph.value(id);
    if (value.type.dtype == DType::f32 && element_count(value.type.shape) == 1) return id;
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", value.name, to_text(value.type));
  }
  fail(Code::graph, "loss",
       "the model has no scalar float32 output to train on, only {}; set the option loss, or export it with its loss",
       found.empty() ? "none at all" : found);
}

}  // namespace

DType precision_of(const Options &options) {
  const std::string name = options.text("precision");
  return name == "bf16" ? DType::bf16 : name == "fp16" ? DType::f16 : DType::f32;
}

std::optional<passes::Loss> loss_of(const Options &options) {
  if (!options.is_set("loss")) {
    for (const char *key : {"loss_output", "loss_labels", "loss_shift", "loss_from"})
      require(!options.is_set(key), Code::arg, key, "{} says how the option loss is computed, and loss is not set",
              key);
    return std::nullopt;
  }
  using Kind = passes::Loss::Kind;
  const std::map<std::string, Kind> kinds = {
      {"cross_entropy", Kind::cross_entropy}, {"mse", Kind::mse}, {"l1", Kind::l1}, {"bce", Kind::bce}};
  const Kind kind = kinds.at(options.text("loss"));
  require(kind == Kind::cross_entropy || kind == Kind::bce || !options.is_set("loss_from"), Code::arg, "loss_from",
          "loss_from says what cross_entropy and bce are given; {} compares numbers as they are", options.text("loss"));
  using From = passes::Loss::From;
  const std::map<std::string, From> sources = {
      {"auto", From::found}, {"logits", From::logits}, {"probabilities", From::probabilities}};
  return passes::Loss{.kind = kind,
                      .output = options.text("loss_output"),
                      .labels = options.text("loss_labels"),
                      .shift = options.integer("loss_shift") != 0,
                      .from = sources.at(options.text("loss_from"))};
}

onnx_import::DimBindings dim_bindings(const Options &options) {
  onnx_import::DimBindings dims;
  for (const std::string &item : options.list("dim")) {  // NAME=N, checked when it was set
    const std::size_t equals = item.rfind('=');
    const std::int64_t count = parse_integer(item.substr(equals + 1)).value();
    const auto [at, fresh] = dims.emplace(item.substr(0, equals), count);
    require(fresh || at->second == count, Code::shape, at->first, "dim {} is bound to both {} and {}", at->first,
            at->second, count);
  }
  return dims;
}

LoadedModel load_model(const Options &options, const onnx_import::Source &source, const std::string &more) {
  onnx_import::DimBindings dims = dim_bindings(options);
  if (!more.empty())
    for (const std::string &item : split(more, ',')) {
      const std::size_t equals = item.rfind('=');
      dims[item.substr(0, equals)] = parse_integer(item.substr(equals + 1)).value();
    }
  return load_model(options, onnx_import::Model::open(source), dims);
}

LoadedModel load_model(const Options &options, std::unique_ptr<onnx_import::Model> file,
                       const onnx_import::DimBindings &dims) {
  LoadedModel loaded{.file = std::move(file), .prepared = {}, .loss = graph::ValueId::none};
  graph::Graph graph = loaded.file->graph(dims);
  const std::optional<passes::Loss> loss = loss_of(options);
  if (!loss) keep_loss_output(graph);
  const auto load = [&](const std::string &name) { return loaded.file->load(name); };
  loaded.prepared = passes::prepare(std::move(graph), load,
                                    {.trainable = options.list("trainable"),
                                     .frozen = options.list("frozen"),
                                     .ties = options.list("tie"),
                                     .loss = loss,
                                     .declared = declared_of(options, *loaded.file)});
  loaded.loss = find_loss(loaded.prepared.graph);
  if (const DType precision = precision_of(options); precision != DType::f32)
    passes::to_narrow(loaded.prepared.graph, loaded.loss, precision);
  return loaded;
}

}  // namespace protrain::session
