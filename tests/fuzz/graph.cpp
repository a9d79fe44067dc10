// Fuzzes with well-formed models. The mutator changes protobuf messages, or adds nodes of ONNX's own test cases. Small
// models that are accepted train for a step on the CPU, and are exported.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "fuzz/differentiate.h"
#include "measure/measure.h"
#include "onnx_import/mutation.h"
#include "onnx_nodes/case.h"
#include "ops/op.h"
#include "session/session.h"

using namespace protrain;
using onnx_import::GraphProto;
using onnx_import::ModelProto;
using onnx_import::NodeProto;

namespace {

constexpr double kMostFlops = 1e7;
constexpr std::uint64_t kMostBytes = 1 << 22;  // for all values together
constexpr std::size_t kMostNodes = 400;

bool is_small(const graph::Graph &graph) {
  std::uint64_t bytes = 0;
  double flops = 0;
  if (graph.nodes().size() > kMostNodes) return false;
  for (std::size_t i = 0; i < graph.value_count(); ++i) {
    const graph::Type &type = graph.value(static_cast<graph::ValueId>(i)).type;
    if (type.dtype == DType::none) return false;
    bytes += std::min(byte_count(type.dtype, type.shape), 2 * kMostBytes);
    if (bytes > kMostBytes) return false;
  }
  for (const graph::Node &node : graph.nodes()) flops += ops::cost(graph, node).flops;
  return flops <= kMostFlops;
}

// Writes a profile with a time for every kernel, so that a session measures none. Removes the profile of an earlier
// model first, because the cache would add these times to it.
void write_times(const graph::Graph &graph, const std::string &directory) {
  static const backend::DeviceInfo info = backend::open("cpu", 1)->info();
  profile::Profile profile = profile::known_machine("rtx3090");
  profile.kind = DeviceKind::cpu;
  profile.shares_memory = profile.shares_cores = true;
  for (const graph::Node &node : graph.nodes()) profile.kernels[ops::signature(graph, node)] = 1e-6;
  for (const auto &entry : std::filesystem::directory_iterator(directory))
    if (entry.path().filename().string().starts_with("profile-")) std::filesystem::remove(entry.path());
  measure::Cache(directory, info, backend::Optimizer(), "").store(profile);
}

// Sets every input to small numbers; integers are 0 and 1, so that most are valid indices.
void set_inputs(session::Session &session) {
  for (std::size_t i = 0; i < session.input_count(); ++i) {
    const DType dtype = session.input_dtype(i);
    const Shape &shape = session.input_shape(i);
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
    for (std::size_t v = 0; v < values.size(); ++v)
      values[v] = is_float(dtype) ? 0.25 * static_cast<double>(v % 7) - 0.5 : static_cast<double>(v % 2);
    const graph::Array array = graph::Array::from_doubles({dtype, shape}, values);
    std::vector<std::byte> bytes(byte_count(dtype, shape));
    array.write_dense(bytes.data());
    session.set_input(session.input_name(i), dtype, shape, bytes.data());
  }
}

// Creates a session, evaluates, takes a step, exports the model and opens the export.
void train(const std::string &bytes, draft::Options options, const test::Scratch &scratch) {
  constexpr const char *kPrecisions[] = {"fp32", "fp32", "bf16", "fp16"};
  options.set("threads", "1");
  options.set("memory", "256MiB");
  options.set("profile_dir", scratch.path());
  options.set("on_nonfinite", bytes.size() % 3 == 0 ? "skip" : "stop");
  options.set("precision", kPrecisions[std::hash<std::string>()(bytes) % std::size(kPrecisions)]);
  const auto session =
      session::Session::create(options, fuzz::in_memory(bytes, fuzz::external_folder()), nullptr, nullptr);
  fuzz::answer([&] { set_inputs(*session); });
  fuzz::answer([&] { session->evaluate(); });
  fuzz::answer([&] { session->step(); });
  const std::string path = scratch / "exported.onnx";
  if (!fuzz::answer([&] { session->export_model(path); })) onnx_import::Model::open(path);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  static const test::Scratch scratch;
  const std::string bytes(fuzz::text_of(data, size));
  const fuzz::GradientResult found = fuzz::differentiate(bytes);
  if (!found.training || !is_small(found.training->graph)) return 0;
  fuzz::answer([&] {
    draft::Options options;
    if (found.attached) options.set("loss", "mse");
    const auto file = onnx_import::Model::open(fuzz::in_memory(bytes, fuzz::external_folder()));
    for (const std::string &name : file->symbolic_dims()) options.set("dim", name + "=3");
    write_times(found.training->graph, scratch.path());
    train(bytes, options, scratch);
  });
  return 0;
}

namespace {

const std::vector<test::Case> &cases() {
  static const std::vector<test::Case> all = test::packed_cases(PROTRAIN_FUZZ_CASES);
  return all;
}

// The name of a value that the node with index `place` can read without closing a cycle.
std::string value_before(GraphProto &graph, int place, test::Mutation &chance) {
  if (place > 0 && chance.below(3) != 0) {
    const NodeProto &node = graph.node(static_cast<int>(chance.below(static_cast<std::size_t>(place))));
    if (node.output_size() > 0) return node.output(0);
  }
  if (graph.initializer_size() > 0 && chance.below(2) == 0) return chance.any(graph.mutable_initializer())->name();
  return graph.input_size() > 0 ? chance.any(graph.mutable_input())->name() : "nothing";
}

// Adds the nodes of a random test case of ONNX to the model. These nodes read the inputs that come with the case, or in
// some places values of the model instead. The mean of the last node's first output is added to the model's output.
void splice(ModelProto &model, test::Mutation &chance) {
  const test::Case &from = cases()[chance.below(cases().size())];
  ModelProto other;
  if (!other.ParseFromString(from.model) || other.graph().node_size() == 0) return;
  auto &graph = *model.mutable_graph();
  const std::string prefix = "s" + std::to_string(chance.below(1'000'000)) + "_";
  std::vector<std::string> given;
  for (std::size_t i = 0; i < from.inputs.size(); ++i) {
    given.push_back(chance.below(6) == 0 ? value_before(graph, graph.node_size(), chance)
                                         : prefix + "in" + std::to_string(i));
    auto &initializer = *graph.add_initializer();
    if (!initializer.ParseFromString(from.inputs[i])) return;
    initializer.set_name(prefix + "in" + std::to_string(i));
  }
  const auto renamed = [&](const std::string &name) {
    const auto found = std::ranges::find(from.names, name);
    const auto at = static_cast<std::size_t>(found - from.names.begin());
    return name.empty() ? name : found != from.names.end() && at < given.size() ? given[at] : prefix + name;
  };
  std::string last;
  for (const auto &node : other.graph().node()) {
    auto &copy = *graph.add_node();
    copy = node;
    for (auto &name : *copy.mutable_input()) name = renamed(name);
    for (auto &name : *copy.mutable_output()) name = renamed(name);
    copy.set_name(prefix + node.name());
    if (copy.output_size() > 0) last = copy.output(0);
  }
  if (last.empty() || graph.output_size() == 0) return;
  for (auto &opset : *model.mutable_opset_import())
    if (opset.domain().empty()) opset.set_version(std::max(opset.version(), from.opset));
  const auto add = [&](const char *op, std::vector<std::string> inputs, const std::string &output) -> NodeProto & {
    auto &node = *graph.add_node();
    node.set_op_type(op);
    for (std::string &input : inputs) node.add_input(std::move(input));
    node.add_output(output);
    return node;
  };
  const auto set = [](NodeProto &node, const char *name, std::int64_t value) {
    constexpr int kInt = 2;  // AttributeProto.INT
    auto &attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(kInt);
    attribute.set_i(value);
  };
  const std::string old = graph.output(0).name();
  set(add("Cast", {last}, prefix + "cast"), "to", 1);
  set(add("ReduceMean", {prefix + "cast"}, prefix + "mean"), "keepdims", 0);
  add("Add", {old, prefix + "mean"}, prefix + "sum");
  graph.mutable_output(0)->set_name(prefix + "sum");
}

void nudge(NodeProto &node, test::Mutation &chance) {
  if (node.attribute_size() == 0) return;
  auto &attribute = *chance.any(node.mutable_attribute());
  const std::size_t by = chance.below(5);
  const auto moved = [by](std::int64_t value) {  // adds -2 to 2, with wraparound
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(value) + by - 2);
  };
  if (attribute.has_i()) attribute.set_i(moved(attribute.i()));
  if (attribute.has_f()) attribute.set_f(attribute.f() * (static_cast<float>(by) - 2));
  if (attribute.ints_size() == 0) return;
  const int at = static_cast<int>(chance.below(static_cast<std::size_t>(attribute.ints_size())));
  attribute.set_ints(at, moved(attribute.ints(at)));
}

// Makes one change to the model. Each node still has as many inputs and outputs as its operator needs, so most changed
// models can be trained.
void change_gently(ModelProto &model, test::Mutation &chance) {
  auto &graph = *model.mutable_graph();
  if (graph.node_size() == 0) return splice(model, chance);
  const int place = static_cast<int>(chance.below(static_cast<std::size_t>(graph.node_size())));
  NodeProto &node = *graph.mutable_node(place);
  switch (chance.below(6)) {
    case 0:
      if (node.input_size() > 0)
        node.set_input(static_cast<int>(chance.below(static_cast<std::size_t>(node.input_size()))),
                       value_before(graph, place, chance));
      break;
    case 1: {
      const NodeProto like = *chance.any(graph.mutable_node());
      if (like.input_size() != node.input_size() || like.output_size() != node.output_size()) break;
      node.set_op_type(like.op_type());
      node.set_domain(like.domain());
      *node.mutable_attribute() = like.attribute();
      break;
    }
    case 2:
      nudge(node, chance);
      break;
    case 3:
      if (node.output_size() > 0) *graph.add_output()->mutable_name() = node.output(0);
      break;
    default:
      splice(model, chance);
  }
}

}  // namespace

// Replaces libFuzzer's own mutator, which changes bytes and therefore seldom makes models that can be parsed.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size, std::size_t most, unsigned seed) {
  static const std::string simplest = fuzz::layered_model(1);
  test::Mutation chance(seed);
  ModelProto model;
  if (!model.ParseFromArray(data, static_cast<int>(size)) || !model.has_graph()) model.ParseFromString(simplest);
  if (chance.below(8) != 0)
    change_gently(model, chance);
  else
    chance.change(model);
  const std::string bytes = model.SerializeAsString();
  if (bytes.size() > most) return size;
  std::ranges::copy(bytes, reinterpret_cast<char *>(data));
  return bytes.size();
}
