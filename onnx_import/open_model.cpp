// Opens a model: reads the skeleton, parses messages, checks them, and builds the unbound graph. graph() returns a copy
// of that graph with dims and constants filled in.
#include "onnx_import/model.h"

#include <fmt/ranges.h>
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/adapted_model.h"
#include "onnx_import/artifacts.h"
#include "onnx_import/bodies.h"
#include "onnx_import/build.h"
#include "onnx_import/declared.h"
#include "onnx_import/functions.h"
#include "onnx_import/messages.h"
#include "onnx_import/save.h"
#include "onnx_import/skeleton.h"
#include "onnx_import/sparse.h"
#include "onnx_import/split_model.h"
#include "onnx_import/training_info.h"

namespace protrain::onnx_import {

namespace {

// The greatest depth to which messages in a skeleton (a model without its large tensors' data) are nested: four levels
// for each subgraph inside of another one, and a few for the messages around them.
constexpr int kMostLevels = 4 * kMaxSubgraphDepth + 20;

ModelProto &parse(const Storage &storage, Messages &messages) {
  const File &file = storage.model();
  auto &proto = messages.make<ModelProto>();
  const std::string skeleton = read_skeleton(file);
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const std::uint8_t *>(skeleton.data()),
                                                static_cast<int>(skeleton.size()));
  stream.SetRecursionLimit(kMostLevels);
  require(proto.ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage(), Code::format, file.path(),
          "not an ONNX model, or a damaged one: its parts do not parse");
  require(proto.has_graph(), Code::format, file.path(), "no graph; not an ONNX model");
  inline_functions(proto, messages, file.path());
  make_dense(proto, storage);
  move_weights_out(proto);
  return proto;
}

class OpenModel : public Model {
 public:
  explicit OpenModel(const ModelSource &source) : storage_(source) {
    ModelProto &proto = parse(storage_, messages_);
    if (is_training_model(proto)) {
      take_artifacts(proto);
    } else if (auto found = join_training(proto, storage_)) {
      take_training(proto, std::move(found->training), std::move(found->trained));
      exported_ = std::make_unique<OpenModel>(source, nullptr);
    } else {
      take(proto);
    }
  }
  // Opens the eval model of `artifacts`. If `artifacts` is nullptr, opens `source` without its training_info.
  OpenModel(const ModelSource &source, const Artifacts *artifacts)
      : storage_(source), in_checkpoint_(artifacts != nullptr) {
    ModelProto &proto = parse(storage_, messages_);
    if (artifacts != nullptr) artifacts->bind(proto, messages_);
    take(proto);
  }

  std::set<std::string> files() const override;
  const std::vector<Input> &inputs() const override { return unbound_.inputs; }
  const std::vector<Output> &outputs() const override { return unbound_.outputs; }
  std::vector<std::string> symbolic_dims() const override;
  const graph::FileDeclarations &declared() const override { return declared_; }
  const graph::Bodies &bodies() const override { return unbound_.bodies; }
  graph::Graph graph(const DimBindings &dims, const InputValues &values) const override;
  std::set<DType> replaced_floats() const override;
  DType dtype_in_file(const std::string &initializer) const override { return weights(initializer).type.dtype; }
  DType computed_dtype(const std::string &initializer) const override {
    const DType in_file = dtype_in_file(initializer);
    return is_float(in_file) ? in_file : dtype_of(computed_type(proto_->graph(), initializer), initializer);
  }
  graph::Array load(const std::string &initializer) const override {
    return loaded(unbound_.graph.find(initializer), weights(initializer));
  }
  void read(const std::string &initializer, std::uint64_t offset, std::span<std::byte> out) const override;
  void save(const std::string &path, const Weights &weights, const SavedForm &form) const override;

 private:
  void take(const ModelProto &proto) {
    proto_ = &proto;
    unbound_ = build_unbound(proto, storage_);
    declared_ = read_declarations(proto, unbound_.initializers, storage_.model().path());
  }
  void take_artifacts(ModelProto &proto);
  void take_training(const ModelProto &proto, graph::FileTraining training, std::vector<std::string> trained);
  const Tensor &weights(const std::string &initializer) const;
  // Returns the values in the graph's type. Allocates memory only after checking that the data exists.
  graph::Array loaded(graph::ValueId id, const Tensor &tensor) const {
    return unbound_.packed.contains(id) ? storage_.load_packed(tensor)
                                        : unbound_.floats.computed(storage_.load(tensor));
  }
  DimBindings all_dims(const DimBindings &dims) const;
  void refuse_own_files(const std::string &path) const;

  Storage storage_;
  Messages messages_;
  const ModelProto *proto_ = nullptr;  // unbound_ points into it
  UnboundGraph unbound_;
  graph::FileDeclarations declared_;
  std::set<std::string> artifacts_;      // the paths of a training model's artifacts
  const bool in_checkpoint_ = false;     // the weights lie in the checkpoint of artifacts
  std::unique_ptr<OpenModel> exported_;  // the model to export; nullptr: the one that is trained
};

void OpenModel::take_artifacts(ModelProto &proto) {
  const Artifacts artifacts(storage_);
  const std::vector<std::string> trained = artifacts.cut(proto, messages_);
  artifacts.bind(proto, messages_);
  take_training(proto, artifacts.add_moments(proto, trained), trained);
  artifacts_ = artifacts.files();
  if (const auto eval = artifacts.eval_model()) exported_ = std::make_unique<OpenModel>(*eval, &artifacts);
}

void OpenModel::take_training(const ModelProto &proto, graph::FileTraining training, std::vector<std::string> trained) {
  take(proto);
  if (!trained.empty()) declared_.updated = std::move(trained);
  declared_.training = std::move(training);
  check_moments(*declared_.training, unbound_.initializers);
}

std::set<std::string> OpenModel::files() const {
  std::set<std::string> found = storage_.external_files(proto_->graph());
  found.insert(storage_.model().path());
  found.insert(artifacts_.begin(), artifacts_.end());
  if (exported_) found.merge(exported_->files());
  return found;
}

void OpenModel::refuse_own_files(const std::string &path) const {
  const std::set<std::string> own = files();
  for (const std::string &target : {path, path + ".data"}) {
    const auto identity = identity_of(target);
    const auto is_read = [&](const std::string &source) { return identity_of(source) == identity; };
    require(!identity || (identity != storage_.model().identity() && std::ranges::none_of(own, is_read)), Code::path,
            target, "the model reads its weights from this file; save under another name");
  }
}

void OpenModel::save(const std::string &path, const Weights &weights, const SavedForm &form) const {
  require(exported_ || !declared_.training, Code::unsupported, storage_.model().path(),
          "no eval model beside it; an export of onnxruntime-training's artifacts writes that model with new weights");
  refuse_own_files(path);
  if (exported_) return exported_->save(path, weights, form);
  const auto save_as = [&](const ModelProto &proto, const std::map<std::string, Tensor> &initializers) {
    save_model({proto, initializers, storage_, unbound_.floats, in_checkpoint_, form.as_computed}, path, weights,
               form.inline_bytes);
  };
  if (form.splits.empty() && form.adapters.empty()) return save_as(*proto_, unbound_.initializers);
  const SplitModel split(*proto_, form.splits);
  if (form.adapters.empty()) return save_as(split.proto(), split.initializers());
  const AdaptedModel adapted(split.proto(), form.adapters);
  save_as(adapted.proto(), adapted.initializers());
}

const Tensor &OpenModel::weights(const std::string &initializer) const {
  const auto found = unbound_.initializers.find(initializer);
  require(found != unbound_.initializers.end(), Code::arg, printable(initializer), "the model has no such initializer");
  return found->second;
}

void OpenModel::read(const std::string &initializer, std::uint64_t offset, std::span<std::byte> out) const {
  const Tensor &tensor = weights(initializer);
  if (tensor.four_bits && !unbound_.packed.contains(unbound_.graph.find(initializer))) {
    const graph::Array all = storage_.load(tensor);  // zero points: one byte an element
    require(offset <= all.stored_bytes() && out.size() <= all.stored_bytes() - offset, Code::internal, initializer,
            "{} bytes at {} of {}", out.size(), offset, to_text(all.type()));
    std::copy_n(all.bytes() + offset, out.size(), out.data());
    return;
  }
  const DType in_file = tensor.type.dtype, computed = unbound_.floats.computed(in_file);
  if (in_file == computed) return storage_.read_part(tensor, offset, out);
  constexpr std::size_t kAtOnce = 1 << 18;  // elements
  const std::uint64_t first = offset / size_of(computed), count = out.size() / size_of(computed);
  require(first * size_of(computed) == offset && count * size_of(computed) == out.size(), Code::internal, initializer,
          "{} bytes at {} are no whole elements", out.size(), offset);
  std::vector<std::byte> bytes(std::min<std::uint64_t>(kAtOnce, count) * size_of(in_file));
  for (std::uint64_t at = 0; at < count; at += kAtOnce) {
    const std::uint64_t some = std::min<std::uint64_t>(kAtOnce, count - at);
    storage_.read_part(tensor, (first + at) * size_of(in_file), std::span(bytes).first(some * size_of(in_file)));
    convert_floats(in_file, bytes.data(), static_cast<std::int64_t>(some), computed,
                   out.data() + at * size_of(computed));
  }
}

std::set<DType> OpenModel::replaced_floats() const {
  std::set<DType> found;
  const auto add = [&](DType dtype) {
    if (unbound_.floats.computed(dtype) != dtype) found.insert(dtype);
  };
  for (const Input &input : unbound_.inputs) add(input.dtype);
  for (const auto &[name, tensor] : unbound_.initializers)
    if (unbound_.graph.find(name) != graph::ValueId::none) add(tensor.type.dtype);
  return found;
}

// The names of all symbolic dims of the inputs, in order of appearance.
std::vector<std::string> named_dims(const std::vector<Input> &inputs) {
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (const Input &input : inputs)
    for (const auto &dim : input.dims)
      if (const auto *name = std::get_if<std::string>(&dim); name != nullptr && seen.insert(*name).second)
        names.push_back(*name);
  return names;
}

// Splits "past + sequence" or "past + 1" into its terms. Returns an empty vector if there is only one term, or if a
// term is neither a number nor one of `names`.
std::vector<std::string> terms_of(const std::string &dim, const std::set<std::string> &names) {
  std::vector<std::string> terms = split(dim, '+');
  if (terms.size() < 2) return {};
  for (std::string &term : terms) {
    term.erase(0, std::min(term.size(), term.find_first_not_of(' ')));
    term.erase(term.find_last_not_of(' ') + 1);
    if (!parse_integer(term) && !names.contains(term)) return {};
  }
  return terms;
}

std::vector<std::string> OpenModel::symbolic_dims() const {
  const std::vector<std::string> names = named_dims(unbound_.inputs);
  const std::set<std::string> known(names.begin(), names.end());
  std::vector<std::string> needed;
  for (const std::string &name : names)
    if (terms_of(name, known).empty()) needed.push_back(name);
  return needed;
}

// Checks `dims`, and returns them together with the dims whose names are sums of other dims.
DimBindings OpenModel::all_dims(const DimBindings &dims) const {
  const std::vector<std::string> names = named_dims(unbound_.inputs);
  const std::set<std::string> known(names.begin(), names.end());
  std::vector<std::string> unbound;
  for (const std::string &name : symbolic_dims()) {
    const auto bound = dims.find(name);
    if (bound == dims.end())
      unbound.push_back(name);
    else
      require(bound->second >= 0, Code::shape, name, "bound to {}; a dim is at least 0", bound->second);
  }
  for (const auto &[name, value] : dims)
    require(known.contains(name), Code::arg, printable(name), "the model has no such dim; it has: {}",
            names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
  require(unbound.empty(), Code::shape, storage_.model().path(),
          "dims without a value: {}; bind each to a number, such as dim {}=8", fmt::join(unbound, ", "),
          unbound.empty() ? "" : unbound.front());
  DimBindings all = dims;
  for (const std::string &name : names) {
    const std::vector<std::string> terms = terms_of(name, known);
    if (terms.empty()) continue;
    std::int64_t sum = 0;
    for (const std::string &term : terms) {
      const auto number = parse_integer(term);
      const bool fits = !__builtin_add_overflow(sum, number ? *number : all[term], &sum);
      require(fits && sum >= 0, Code::shape, printable(name), "this sum is negative or overflows 64 bits");
    }
    const std::int64_t bound = all.emplace(name, sum).first->second;
    require(bound == sum, Code::shape, printable(name), "bound to {}, and its terms add up to {}", bound, sum);
  }
  return all;
}

// Returns the elements of an input that the caller binds to the numbers `values`. There may be one number for all
// elements, one for each index of the last axis, or one for each element.
graph::Array bound_array(const Input &input, const graph::Type &type, const std::vector<double> &values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const Shape &shape = type.shape;
  const bool is_last = !shape.empty() && shape.back() == count, is_all = element_count(shape) == count;
  require(count == 1 || is_last || is_all, Code::arg, printable(input.name),
          "is bound to {} values, and has the shape {}; give 1 value, one for each index of the last axis, or all",
          count, to_text(shape));
  for (const double value : values) {
    const bool fits = is_float(type.dtype) || (value == std::trunc(value) && std::abs(value) <= 0x1p53);
    require(fits && (type.dtype != DType::boolean || value == 0 || value == 1), Code::arg, printable(input.name),
            "is bound to {}, which is no {}", real_text(value), name_of(type.dtype));
  }
  const Shape given = count == 1 ? Shape{} : is_last ? Shape{count} : shape;
  const graph::Array array = graph::Array::from_doubles({type.dtype, given}, values);
  if (!is_float(type.dtype)) {
    const std::vector<double> held = array.doubles();
    for (std::size_t i = 0; i < values.size(); ++i)
      require(held[i] == values[i], Code::arg, printable(input.name), "is bound to {}, which is no {}",
              real_text(values[i]), name_of(type.dtype));
  }
  return array.expanded(shape);
}

graph::Graph OpenModel::graph(const DimBindings &dims, const InputValues &values) const {
  const DimBindings all = all_dims(dims);
  std::vector<std::string_view> names;
  for (const Input &input : unbound_.inputs) names.push_back(input.name);
  for (const auto &[name, value] : values)
    require(std::ranges::find(names, name) != names.end(), Code::arg, printable(name),
            "the model has no input {} to bind to a value; its inputs are {}", printable(name),
            printable(fmt::format("{}", fmt::join(names, ", "))));
  graph::Graph graph = unbound_.graph;
  graph.inputs.clear();
  for (std::size_t i = 0; i < unbound_.inputs.size(); ++i) {
    const Input &input = unbound_.inputs[i];
    Shape shape;
    for (const auto &dim : input.dims) {
      const auto *name = std::get_if<std::string>(&dim);
      shape.push_back(name != nullptr ? all.at(*name) : std::get<std::int64_t>(dim));
    }
    byte_count(input.dtype, shape);  // Code::shape, Code::limit for sizes that no machine can address
    const graph::ValueId id = unbound_.graph.inputs[i];
    graph::Value &value = graph.value(id);
    value.type.shape = std::move(shape);
    const auto bound = values.find(input.name);
    if (bound != values.end())
      value.array = bound_array(input, value.type, bound->second);
    else if (element_count(value.type.shape) == 0)
      value.array = graph::Array::filled(value.type, 0);
    else
      graph.inputs.push_back(id);
    if (graph.inputs.empty() || graph.inputs.back() != id) value.origin = graph::Origin::constant;
  }
  std::uint64_t bytes = 0;  // may exceed the size of the files, because tensors can share bytes
  for (const auto &[id, tensor] : unbound_.deferred) {
    const graph::Type &type = graph.value(id).type;
    bytes = checked_add(bytes, byte_count(type.dtype, type.shape));
  }
  require_room(bytes, storage_.model().path());
  for (const auto &[id, tensor] : unbound_.deferred) graph.value(id).array = loaded(id, tensor);
  return graph;
}

}  // namespace

std::unique_ptr<Model> Model::open(const ModelSource &source) {
  if (source.bytes()) return std::make_unique<OpenModel>(source);
  return std::make_unique<OpenModel>(ModelSource(training_model_in(source.path())));
}

}  // namespace protrain::onnx_import
