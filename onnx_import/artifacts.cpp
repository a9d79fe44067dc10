#include "onnx_import/artifacts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/attributes.h"
#include "onnx_import/external.h"
#include "onnx_import/parts.h"
#include "onnx_import/scope.h"
#include "onnx_import/skeleton.h"

namespace protrain::onnx_import {

namespace {

constexpr const char *kTrainingModel = "training_model.onnx", *kEvalModel = "eval_model.onnx",
                     *kOptimizerModel = "optimizer_model.onnx", *kCheckpoint = "checkpoint";
constexpr std::string_view kMicrosoftDomain = "com.microsoft";
constexpr std::string_view kBuffer = "_grad.accumulation.buffer";  // follows the parameter's name

using Options = std::vector<std::pair<std::string, std::string>>;

bool accumulates(const NodeProto &node) {
  return node.domain() == kMicrosoftDomain &&
         (node.op_type() == "InPlaceAccumulatorV2" || node.op_type() == "InPlaceAccumulator");
}

std::string parameter_of(const NodeProto &accumulator) {
  const std::string &buffer = accumulator.input_size() > 0 ? accumulator.input(0) : accumulator.name();
  require(buffer.size() > kBuffer.size() && buffer.ends_with(kBuffer), Code::unsupported, printable(accumulator.name()),
          "accumulates in {}; expected the name of a parameter, followed by {}", printable(buffer), kBuffer);
  return buffer.substr(0, buffer.size() - kBuffer.size());
}

// Turns a ConcatTraining into a Concat. Drops the second output of the ConcatTraining, because only the backward part
// reads it.
void make_plain(NodeProto &node) {
  if (node.domain() != kMicrosoftDomain || node.op_type() != "ConcatTraining") return;
  node.clear_domain();
  node.set_op_type("Concat");
  while (node.output_size() > 1) node.mutable_output()->RemoveLast();
}

Options adamw(const graph::Attributes &attributes) {
  const bool as_pytorch = attributes.integer("adam_mode", 0) == 0,
             corrects = attributes.integer("correct_bias", 1) != 0;
  return {{"optimizer", "adamw"},
          {"beta1", text_of_float(attributes.real("alpha", 0.9))},
          {"beta2", text_of_float(attributes.real("beta", 0.999))},
          {"epsilon", text_of_float(attributes.real("epsilon", 1e-8))},
          {"weight_decay", text_of_float(attributes.real("weight_decay", 0.01))},
          {"correction", !corrects    ? "none"
                         : as_pytorch ? "moments"
                                      : "rate"},
          {"decay_order", as_pytorch ? "before" : "after"}};
}

// Returns the options that say what a node of an optimizer model does.
Options options_of(const NodeProto &node, const Storage &storage) {
  const std::string subject = subject_of(node);
  const graph::Attributes attributes = read_attributes(node, subject, storage);
  if (node.domain() == kMicrosoftDomain && node.op_type() == "AdamWOptimizer") return adamw(attributes);
  if (node.domain() == kMicrosoftDomain && node.op_type() == "SGDOptimizerV2") return {{"optimizer", "sgd"}};
  const bool clips = node.domain() == kMicrosoftDomain && node.op_type() == "InplaceClipGradNorm";
  require(clips && attributes.text("norm_type", "fro") == "fro", Code::unsupported, subject,
          "{} of the optimizer model has no counterpart here; the option optimizer trains by another",
          printable(node.op_type()));
  return {{"clip_norm", text_of_float(attributes.real("max_norm", 1.0))}};
}

Options read_optimizer(const std::string &path) {
  const Storage storage{ModelSource(path)};
  Messages messages;
  auto &proto = messages.make<ModelProto>();
  require(proto.ParseFromString(read_skeleton(storage.model())), Code::format, path, "not an ONNX model");
  Options options;
  for (const NodeProto &node : proto.graph().node())
    for (auto &option : options_of(node, storage)) options.push_back(std::move(option));
  return options;
}

std::string prefix_of(const std::string &path) {
  const std::string name = base_name(path);
  return name.ends_with(kTrainingModel) ? name.substr(0, name.size() - std::string_view(kTrainingModel).size()) : "";
}

}  // namespace

std::string training_model_in(const std::string &path) {
  std::error_code unreadable;
  if (!std::filesystem::is_directory(path, unreadable)) return path;
  std::vector<std::string> found;
  for (const DirectoryEntry &entry : list_directory(path))
    if (entry.name.ends_with(kTrainingModel)) found.push_back(entry.name);
  require(found.size() == 1, Code::io, path,
          "a folder with {} training models; a folder of onnxruntime-training's artifacts has one {}", found.size(),
          kTrainingModel);
  return path + "/" + found.front();
}

bool is_training_model(const ModelProto &proto) { return std::ranges::any_of(proto.graph().node(), accumulates); }

Artifacts::Artifacts(const Storage &storage)
    : roots_(storage.roots()),
      prefix_(prefix_of(storage.model().path())),
      checkpoint_(read_ort_checkpoint(
          open_external(roots_, prefix_ + kCheckpoint, "the checkpoint of " + storage.model().path()))) {
  const auto optimizer = find(kOptimizerModel);
  if (!optimizer) return;
  try {
    optimizer_ = read_optimizer(*optimizer);
  } catch (const Error &error) {
    if (error.code != Code::unsupported) throw;
    refusal_ = error;
  }
}

std::optional<std::string> Artifacts::find(const char *file) const {
  const std::string name = prefix_ + file;
  try {
    open_external(roots_, name, name);
  } catch (const Error &error) {
    if (error.code != Code::io) throw;
    return std::nullopt;
  }
  return roots_.front() + "/" + name;
}

std::optional<std::string> Artifacts::eval_model() const { return find(kEvalModel); }

std::set<std::string> Artifacts::files() const {
  std::set<std::string> files;
  for (const char *file : {kCheckpoint, kOptimizerModel})
    if (const auto path = find(file)) files.insert(*path);
  return files;
}

std::vector<std::string> Artifacts::cut(ModelProto &proto, Messages &messages) const {
  GraphProto &graph = *proto.mutable_graph();
  std::vector<std::string> trained;
  std::set<std::string> accumulated, operands;
  for (const NodeProto &node : graph.node()) {
    if (!accumulates(node)) continue;
    trained.push_back(parameter_of(node));
    accumulated.insert(node.output().begin(), node.output().end());
    operands.insert(node.input().begin(), node.input().end());
  }
  drop(*graph.mutable_output(), messages,
       [&](const ValueInfo &output, int) { return accumulated.contains(output.name()); });
  std::vector<std::string> outputs;
  for (const ValueInfo &output : graph.output()) outputs.push_back(output.name());
  const std::vector<bool> needed = needed_nodes(graph, outputs);
  drop(*graph.mutable_node(), messages, [&](const NodeProto &, int n) { return !needed[static_cast<std::size_t>(n)]; });
  drop(*graph.mutable_input(), messages, [&](const ValueInfo &input, int) { return operands.contains(input.name()); });
  for (NodeProto &node : *graph.mutable_node()) make_plain(node);
  return trained;
}

void Artifacts::add_initializer(ModelProto &proto, const CheckpointTensor &tensor, const std::string &name) const {
  TensorProto &made = *proto.mutable_graph()->add_initializer();
  made.set_name(name);
  made.set_data_type(tensor.data_type);
  made.mutable_dims()->Add(tensor.dims.begin(), tensor.dims.end());
  const auto add = [&](const char *key, const std::string &value) {
    StringPair &entry = *made.add_external_data();
    entry.set_key(key);
    entry.set_value(value);
  };
  add("location", prefix_ + kCheckpoint + (tensor.beside ? ".data" : ""));
  add("offset", fmt::format("{}", tensor.offset));
  const std::uint64_t bytes =
      tensor.beside ? byte_count(dtype_of(tensor.data_type, name), Shape(tensor.dims.begin(), tensor.dims.end()))
                    : tensor.bytes;
  add("length", fmt::format("{}", bytes));
  made.set_data_location(1);
}

void Artifacts::bind(ModelProto &proto, Messages &messages) const {
  std::map<std::string_view, const CheckpointTensor *> held;
  for (const auto *tensors : {&checkpoint_.trained, &checkpoint_.frozen})
    for (const CheckpointTensor &tensor : *tensors) held.emplace(tensor.name, &tensor);
  for (const ValueInfo &input : proto.graph().input())
    if (const auto tensor = held.find(input.name()); tensor != held.end())
      add_initializer(proto, *tensor->second, input.name());
  drop(*proto.mutable_graph()->mutable_input(), messages,
       [&](const ValueInfo &input, int) { return held.contains(input.name()); });
}

graph::FileTraining Artifacts::add_moments(ModelProto &proto, const std::vector<std::string> &trained) const {
  graph::FileTraining training{.source = "onnxruntime-training's artifacts",
                               .loss = proto.graph().output_size() > 0 ? proto.graph().output(0).name() : "",
                               .options = optimizer_,
                               .steps = checkpoint_.steps};
  training.refusal = refusal_;
  if (checkpoint_.learning_rate > 0)
    training.options.emplace_back("learning_rate", text_of_float(static_cast<double>(checkpoint_.learning_rate)));
  for (const std::string &parameter : trained) {
    const auto found = checkpoint_.moments.find(parameter);
    if (found == checkpoint_.moments.end()) continue;
    std::vector<CheckpointTensor> moments = found->second;
    std::ranges::sort(moments, {}, &CheckpointTensor::name);  // momentum0, momentum1; the file has them in any order
    for (const CheckpointTensor &moment : moments) {
      const std::string name = parameter + "/" + moment.name;
      add_initializer(proto, moment, name);
      training.moments[parameter].push_back(name);
    }
  }
  return training;
}

}  // namespace protrain::onnx_import
