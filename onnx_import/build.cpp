// Builds values first, then nodes, because a file need not list its nodes in order.
#include "onnx_import/build.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/error.h"
#include "onnx_import/names.h"
#include "onnx_import/scope.h"
#include "onnx_import/versions.h"

namespace protrain::onnx_import {

namespace {

using graph::Origin;
using graph::ValueId;

// True for floats, and for the integers that weights are quantised to.
bool may_be_weights(DType dtype) { return is_float(dtype) || (is_integer(dtype) && size_of(dtype) <= 2); }

// Turns parsed messages into a graph. Checks everything that can be wrong with a file's graph, so that later code can
// rely on it. The subject of an error is the node or value at fault.
class GraphBuilder {
 public:
  GraphBuilder(const ModelProto &proto, const Storage &storage)
      : proto_(proto), graph_(proto.graph()), storage_(storage), path_(storage.model().path()) {}

  UnboundGraph build() {
    sources_.opset = check_versions(proto_, path_);
    parse_initializers();
    choose_floats();
    add_initializers();
    add_inputs();
    scope_.add_nodes();
    name_outputs();
    return std::move(unbound_);
  }

 private:
  void parse_initializers();
  void choose_floats();
  void add_initializers();
  void add_inputs();
  Input read_input(const ValueInfo &info) const;
  void name_outputs();

  const ModelProto &proto_;
  const GraphProto &graph_;
  const Storage &storage_;
  const std::string &path_;
  UnboundGraph unbound_;
  ScopeSources sources_{proto_, storage_, 0, unbound_};
  Scope scope_{sources_, graph_, unbound_.graph};
};

void GraphBuilder::parse_initializers() {
  for (const TensorProto &proto : graph_.initializer()) {
    const std::string &name = proto.name();
    check_name(name, path_, "initializer");
    require(!unbound_.initializers.contains(name), Code::format, name, "duplicate initializer");
    unbound_.initializers.emplace(name, parse_tensor(proto, name));
  }
  storage_.check_ranges(unbound_.initializers);
}

// Decides whether the model mainly computes in float64. It does so if an input is float64, or if most elements of its
// float initializers are float64.
void GraphBuilder::choose_floats() {
  const auto is_double = [&](const ValueInfo &input) {
    constexpr std::int32_t kDouble = 11;
    return input.type().tensor_type().elem_type() == kDouble && !unbound_.initializers.contains(input.name());
  };
  std::uint64_t doubles = 0, others = 0;  // elements
  for (const auto &[name, tensor] : unbound_.initializers) {
    const DType dtype = tensor.type.dtype;
    if (is_float(dtype) && scope_.is_read(name))
      (dtype == DType::f64 ? doubles : others) += tensor.bytes / size_of(dtype);
  }
  unbound_.floats = Floats(doubles > others || std::ranges::any_of(graph_.input(), is_double));
}

// Adds the initializers that something reads. Those of floats and of quantised integers may be weights. All others
// become constants.
void GraphBuilder::add_initializers() {
  for (const TensorProto &proto : graph_.initializer()) {
    const std::string &name = proto.name();
    if (!scope_.is_read(name)) continue;
    const Tensor &tensor = unbound_.initializers.at(name);
    const graph::Type type = scope_.type_of(name, tensor);
    const Origin origin = may_be_weights(type.dtype) ? Origin::initializer : Origin::constant;
    const ValueId id = scope_.define_initializer({.name = name, .type = type, .origin = origin, .array = {}});
    if (scope_.packs(name, tensor)) unbound_.packed.insert(id);
    if (origin == Origin::constant) unbound_.deferred.emplace(id, tensor);
  }
}

Input GraphBuilder::read_input(const ValueInfo &info) const {
  const std::string &name = info.name();
  require(info.has_type() && info.type().has_tensor_type(), Code::unsupported, name,
          "the input is not a tensor; only tensors are supported");
  const TensorType &type = info.type().tensor_type();
  Input input{name, dtype_of(type.elem_type(), name), {}};
  require(type.has_shape(), Code::shape, name,
          "the input has no known rank; export the model with one (dims may be symbolic)");
  require(type.shape().dim_size() <= kMaxRank, Code::limit, name, "rank {}; at most {} is allowed",
          type.shape().dim_size(), kMaxRank);
  for (int i = 0; i < type.shape().dim_size(); ++i) {
    const Dimension &dim = type.shape().dim(i);
    if (dim.has_dim_value()) {
      require(dim.dim_value() >= 0, Code::shape, name, "dim {} is {}", i, dim.dim_value());
      input.dims.emplace_back(std::int64_t{dim.dim_value()});
    } else if (!dim.dim_param().empty()) {
      check_text(dim.dim_param(), name);
      input.dims.emplace_back(dim.dim_param());
    } else {
      input.dims.emplace_back(fmt::format("{}_dim{}", name, i));
    }
  }
  return input;
}

// Adds the graph's inputs, without those that are initializers too. Files of IR 3 list initializers among the inputs.
// Later files may do so, to let callers override initializers.
void GraphBuilder::add_inputs() {
  std::set<std::string_view> seen;
  for (const ValueInfo &info : graph_.input()) {
    check_name(info.name(), path_, "input");
    require(seen.insert(info.name()).second, Code::graph, info.name(), "duplicate value: an input listed twice");
    if (unbound_.initializers.contains(info.name())) continue;
    unbound_.inputs.push_back(read_input(info));
    const Input &input = unbound_.inputs.back();
    unbound_.graph.inputs.push_back(scope_.define(
        {.name = input.name, .type = {unbound_.floats.computed(input.dtype), {}}, .origin = Origin::input, .array = {}},
        input.name));
  }
}

Output read_output(const ValueInfo &info) {
  Output output{.name = info.name()};
  const TensorType &type = info.type().tensor_type();
  if (type.elem_type() != 0) output.dtype = dtype_of(type.elem_type(), info.name());
  if (!type.has_shape() || type.shape().dim_size() > kMaxRank) return output;
  output.dims.emplace();
  for (const Dimension &dim : type.shape().dim())
    output.dims->push_back(dim.has_dim_value() ? Dim(std::int64_t{dim.dim_value()}) : Dim(dim.dim_param()));
  return output;
}

void GraphBuilder::name_outputs() {
  require(graph_.output_size() > 0, Code::graph, path_, "a graph without outputs");
  for (const ValueInfo &output : graph_.output()) {
    check_name(output.name(), path_, "output");
    const ValueId id = scope_.find(output.name());
    require(id != ValueId::none, Code::graph, output.name(), "no node produces this output of the graph");
    unbound_.graph.outputs.push_back(id);
    unbound_.outputs.push_back(read_output(output));
  }
}

}  // namespace

UnboundGraph build_unbound(const ModelProto &proto, const Storage &storage) {
  return GraphBuilder(proto, storage).build();
}

}  // namespace protrain::onnx_import
