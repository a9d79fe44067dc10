// Opens a model: reads the skeleton, parses messages, checks them, and builds the unbound graph. graph() returns a copy
// of that graph with dims and constants filled in.
#include "onnx_import/model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

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
  std::set<DType> replaced_floats() const override;
  graph::Array load(const std::string &initializer) const override { return loaded(weights(initializer)); }
  void read(const std::string &initializer, std::uint64_t offset, std::span<std::byte> out) const override;
  void save(const std::string &path, const Weights &weights, std::uint64_t inline_bytes,
            const std::vector<graph::Split> &splits) const override {
    const Floats &floats = unbound_.floats;
    if (splits.empty())
      return save_model({proto_, unbound_.initializers, storage_, floats}, path, weights, inline_bytes);
    const SplitModel split(proto_, splits);
    save_model({split.proto(), split.initializers(), storage_, floats}, path, weights, inline_bytes);
  }

 private:
  const Tensor &weights(const std::string &initializer) const;
  // Returns the values in the graph's type. Takes memory only once the data is known to exist.
  graph::Array loaded(const Tensor &tensor) const { return unbound_.floats.computed(storage_.load(tensor)); }
  std::uint64_t loaded_bytes(const Tensor &tensor) const {
    return byte_count(unbound_.floats.computed(tensor.type.dtype), tensor.type.shape);
  }
  void check_bindings(const DimBindings &dims) const;

  Storage storage_;
  Messages messages_;
  const ModelProto &proto_;  // unbound_ points into it
  UnboundGraph unbound_;
  graph::FileDeclarations declared_;
};

const Tensor &OpenModel::weights(const std::string &initializer) const {
  const auto found = unbound_.initializers.find(initializer);
  require(found != unbound_.initializers.end(), Code::arg, printable(initializer), "the model has no such initializer");
  return found->second;
}

void OpenModel::read(const std::string &initializer, std::uint64_t offset, std::span<std::byte> out) const {
  const Tensor &tensor = weights(initializer);
  const DType in_file = tensor.type.dtype, computed = unbound_.floats.computed(in_file);
  if (in_file == computed) return storage_.read_floats(tensor, offset, out);
  constexpr std::size_t kAtOnce = 1 << 18;  // elements
  const std::uint64_t first = offset / size_of(computed), count = out.size() / size_of(computed);
  require(first * size_of(computed) == offset && count * size_of(computed) == out.size(), Code::internal, initializer,
          "{} bytes at {} are no whole elements", out.size(), offset);
  std::vector<std::byte> bytes(std::min<std::uint64_t>(kAtOnce, count) * size_of(in_file));
  for (std::uint64_t at = 0; at < count; at += kAtOnce) {
    const std::uint64_t some = std::min<std::uint64_t>(kAtOnce, count - at);
    storage_.read_floats(tensor, (first + at) * size_of(in_file), std::span(bytes).first(some * size_of(in_file)));
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
  for (const auto &[id, tensor] : unbound_.deferred) bytes = checked_add(bytes, loaded_bytes(tensor));
  require_room(bytes, storage_.model().path());
  for (const auto &[id, tensor] : unbound_.deferred) graph.value(id).array = loaded(tensor);
  return graph;
}

}  // namespace

std::unique_ptr<Model> Model::open(const ModelSource &source) { return std::make_unique<OpenModel>(source); }

}  // namespace protrain::onnx_import
