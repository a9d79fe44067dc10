// Opens a model: reads the skeleton, parses messages, checks them, and builds the unbound graph. graph() returns a copy
// of that graph with dims and constants filled in.
#include "onnx_import/model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/build.h"
#include "onnx_import/declared.h"
#include "onnx_import/functions.h"
#include "onnx_import/messages.h"
#include "onnx_import/save.h"
#include "onnx_import/skeleton.h"
#include "onnx_import/split_model.h"

namespace protrain::onnx_import {

namespace {

const ModelProto &parse(const File &file, Messages &messages) {
  auto &proto = messages.make<ModelProto>();
  require(proto.ParseFromString(read_skeleton(file)), Code::format, file.path(),
          "not an ONNX model, or a damaged one: its parts do not parse");
  require(proto.has_graph(), Code::format, file.path(), "no graph; not an ONNX model");
  inline_functions(proto, messages, file.path());
  return proto;
}

class OpenModel : public Model {
 public:
  explicit OpenModel(const ModelSource &source)
      : storage_(source), proto_(parse(storage_.model(), messages_)), unbound_(build_unbound(proto_, storage_)) {
    declared_ = read_declarations(proto_, unbound_.initializers, storage_.model().path());
  }

  const std::vector<Input> &inputs() const override { return unbound_.inputs; }
  const std::vector<Output> &outputs() const override { return unbound_.outputs; }
  std::vector<std::string> symbolic_dims() const override;
  const graph::FileDeclarations &declared() const override { return declared_; }
  graph::Graph graph(const DimBindings &dims) const override;
  graph::Array load(const std::string &initializer) const override { return storage_.load(weights(initializer)); }
  void read(const std::string &initializer, std::uint64_t offset, std::span<std::byte> out) const override {
    storage_.read_floats(weights(initializer), offset, out);
  }
  void save(const std::string &path, const Weights &weights, std::uint64_t inline_bytes,
            const std::vector<graph::Split> &splits) const override {
    if (splits.empty()) return save_model({proto_, unbound_.initializers, storage_}, path, weights, inline_bytes);
    const SplitModel split(proto_, splits);
    save_model({split.proto(), split.initializers(), storage_}, path, weights, inline_bytes);
  }

 private:
  const Tensor &weights(const std::string &initializer) const;
  void check_bindings(const DimBindings &dims) const;

  Storage storage_;
  Messages messages_;
  const ModelProto &proto_;  // unbound_ points into it
  UnboundGraph unbound_;
  graph::FileDeclarations declared_;
};

void require_full_floats(DType dtype, const std::string &subject) {
  require(dtype != DType::f16 && dtype != DType::bf16, Code::unsupported, subject,
          "weights in {}; export the model with float32 weights", name_of(dtype));
}

const Tensor &OpenModel::weights(const std::string &initializer) const {
  const auto found = unbound_.initializers.find(initializer);
  require(found != unbound_.initializers.end(), Code::arg, printable(initializer), "the model has no such initializer");
  require_full_floats(found->second.type.dtype, initializer);
  return found->second;
}

std::vector<std::string> OpenModel::symbolic_dims() const {
  std::vector<std::string> names;
  for (const Input &input : unbound_.inputs)
    for (const auto &dim : input.dims)
      if (const auto *name = std::get_if<std::string>(&dim))
        if (std::find(names.begin(), names.end(), *name) == names.end()) names.push_back(*name);
  return names;
}

void OpenModel::check_bindings(const DimBindings &dims) const {
  const std::vector<std::string> known = symbolic_dims();
  std::vector<std::string> unbound;
  for (const std::string &name : known) {
    const auto bound = dims.find(name);
    if (bound == dims.end())
      unbound.push_back(name);
    else
      require(bound->second >= 1, Code::shape, name, "bound to {}; a dim is at least 1", bound->second);
  }
  for (const auto &[name, value] : dims)
    require(std::find(known.begin(), known.end(), name) != known.end(), Code::arg, printable(name),
            "the model has no such dim; it has: {}",
            known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
  require(unbound.empty(), Code::shape, storage_.model().path(), "dims without a value: {}; bind each to a number",
          fmt::join(unbound, ", "));
}

graph::Graph OpenModel::graph(const DimBindings &dims) const {
  check_bindings(dims);
  if (!unbound_.half.empty()) require_full_floats(unbound_.initializers.at(unbound_.half).type.dtype, unbound_.half);
  graph::Graph graph = unbound_.graph;
  for (std::size_t i = 0; i < unbound_.inputs.size(); ++i) {
    Shape shape;
    for (const auto &dim : unbound_.inputs[i].dims) {
      const auto *name = std::get_if<std::string>(&dim);
      shape.push_back(name != nullptr ? dims.at(*name) : std::get<std::int64_t>(dim));
    }
    byte_count(unbound_.inputs[i].dtype, shape);  // Code::shape, Code::limit for sizes that no machine can address
    graph.value(graph.inputs[i]).type.shape = std::move(shape);
  }
  std::uint64_t bytes = 0;  // may exceed the size of the files, because tensors can share bytes
  for (const auto &[id, tensor] : unbound_.deferred) bytes = checked_add(bytes, tensor.bytes);
  require_room(bytes, storage_.model().path());
  for (const auto &[id, tensor] : unbound_.deferred) {
    require_full_floats(tensor.type.dtype, tensor.subject);
    graph.value(id).array = storage_.load(tensor);
  }
  return graph;
}

}  // namespace

std::unique_ptr<Model> Model::open(const ModelSource &source) { return std::make_unique<OpenModel>(source); }

}  // namespace protrain::onnx_import
