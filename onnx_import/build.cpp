// Builds values first, then nodes, because a file need not list its nodes in order.
#include "onnx_import/build.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/arity.h"
#include "onnx_import/attributes.h"
#include "onnx_import/names.h"
#include "onnx_import/versions.h"

namespace protrain::onnx_import {

namespace {

using graph::Array;
using graph::Origin;
using graph::ValueId;

// Returns the name of a node for errors: its operator and first output if it has no name.
std::string subject_of(const NodeProto &node) {
  if (!node.name().empty()) return printable(node.name());
  return (node.op_type().empty() ? "node" : printable(node.op_type())) +
         (node.output_size() > 0 ? " -> " + printable(node.output(0)) : "");
}

bool is_constant(const NodeProto &node) { return node.op_type() == "Constant" && is_default_domain(node.domain()); }

// Turns parsed messages into a graph. Checks everything that can be wrong with a file's graph, so that later code can
// rely on it. The subject of an error is the node or value at fault.
class GraphBuilder {
 public:
  GraphBuilder(const ModelProto &proto, const Storage &storage)
      : proto_(proto), graph_(proto.graph()), storage_(storage), path_(storage.model().path()) {}

  UnboundGraph build() {
    opset_ = check_versions(proto_, path_);
    refuse_parts();
    collect_reads();
    parse_initializers();
    choose_floats();
    add_initializers();
    add_inputs();
    for (const NodeProto &node : graph_.node()) add_outputs(node);
    for (const NodeProto &node : graph_.node())
      if (!is_constant(node)) add_node(node);
    name_outputs();
    unbound_.graph.sort();
    return std::move(unbound_);
  }

 private:
  void refuse_parts() const;
  void collect_reads();
  void parse_initializers();
  void choose_floats();
  void add_initializers();
  void add_inputs();
  Input read_input(const ValueInfo &info) const;
  void add_outputs(const NodeProto &node);
  void add_constant(const NodeProto &node, const std::string &subject);
  void add_node(const NodeProto &node);
  void upgrade(graph::Node &node, const NodeProto &proto) const;
  bool is_true(const std::string &value) const;
  void name_outputs();
  ValueId add_value(graph::Value value, const std::string &subject);

  const ModelProto &proto_;
  const GraphProto &graph_;
  const Storage &storage_;
  const std::string &path_;
  std::int64_t opset_ = 0;
  std::unordered_set<std::string_view> reads_;  // names that nodes or the graph's outputs read
  UnboundGraph unbound_;
};

void GraphBuilder::refuse_parts() const {
  require(graph_.sparse_initializer_size() == 0, Code::unsupported, path_, "{} sparse initializers; store them densely",
          graph_.sparse_initializer_size());
}

void GraphBuilder::collect_reads() {
  for (const NodeProto &node : graph_.node()) reads_.insert(node.input().begin(), node.input().end());
  for (const ValueInfo &output : graph_.output()) reads_.insert(output.name());
}

ValueId GraphBuilder::add_value(graph::Value value, const std::string &subject) {
  require(unbound_.graph.find(value.name) == ValueId::none && !unbound_.initializers.contains(value.name), Code::graph,
          subject, "duplicate value: \"{}\" is defined twice", value.name);
  return unbound_.graph.add_value(std::move(value));
}

void GraphBuilder::parse_initializers() {
  for (const TensorProto &proto : graph_.initializer()) {
    const std::string &name = proto.name();
    check_name(name, path_, "initializer");
    require(!unbound_.initializers.contains(name), Code::format, name, "duplicate initializer");
    unbound_.initializers.emplace(name, parse_tensor(proto, name));
  }
  storage_.check_ranges(unbound_.initializers);
}

// A model is one of float64 if an input is, or most of the floats among its initializers are.
void GraphBuilder::choose_floats() {
  const auto is_double = [&](const ValueInfo &input) {
    constexpr std::int32_t kDouble = 11;
    return input.type().tensor_type().elem_type() == kDouble && !unbound_.initializers.contains(input.name());
  };
  std::uint64_t doubles = 0, others = 0;  // elements
  for (const auto &[name, tensor] : unbound_.initializers) {
    const DType dtype = tensor.type.dtype;
    if (is_float(dtype) && reads_.contains(name))
      (dtype == DType::f64 ? doubles : others) += tensor.bytes / size_of(dtype);
  }
  unbound_.floats = Floats(doubles > others || std::ranges::any_of(graph_.input(), is_double));
}

// Float initializers may be weights; all others are constants. Initializers that nothing reads stay out of the graph.
void GraphBuilder::add_initializers() {
  for (const TensorProto &proto : graph_.initializer()) {
    const std::string &name = proto.name();
    if (!reads_.contains(name)) continue;
    const Tensor &tensor = unbound_.initializers.at(name);
    const graph::Type type = {unbound_.floats.computed(tensor.type.dtype), tensor.type.shape};
    const Origin origin = is_float(type.dtype) ? Origin::initializer : Origin::constant;
    const ValueId id = unbound_.graph.add_value({.name = name, .type = type, .origin = origin, .array = {}});
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

// Files of IR 3 list initializers among the inputs. Later files may do so, to let callers override initializers. Here
// such an input is only an initializer.
void GraphBuilder::add_inputs() {
  std::set<std::string_view> seen;
  for (const ValueInfo &info : graph_.input()) {
    check_name(info.name(), path_, "input");
    require(seen.insert(info.name()).second, Code::graph, info.name(), "duplicate value: an input listed twice");
    if (unbound_.initializers.contains(info.name())) continue;
    unbound_.inputs.push_back(read_input(info));
    const Input &input = unbound_.inputs.back();
    unbound_.graph.inputs.push_back(add_value(
        {.name = input.name, .type = {unbound_.floats.computed(input.dtype), {}}, .origin = Origin::input, .array = {}},
        input.name));
  }
}

void GraphBuilder::add_outputs(const NodeProto &node) {
  const std::string subject = subject_of(node);
  check_text(node.name(), subject);
  check_name(node.op_type(), subject, "operator");
  check_text(node.domain(), subject);
  if (is_default_domain(node.domain())) check_operator(node.op_type(), opset_, subject);
  if (!is_constant(node)) check_arity(node, subject);
  bool any = false;
  for (const std::string &output : node.output()) {
    check_text(output, subject);
    any = any || !output.empty();
  }
  require(any, Code::graph, subject, "a node without outputs");
  if (is_constant(node)) return add_constant(node, subject);
  for (const std::string &output : node.output())
    if (!output.empty()) add_value({.name = output, .type = {}, .array = {}}, subject);
}

void GraphBuilder::add_constant(const NodeProto &node, const std::string &subject) {
  require(node.input_size() == 0 && node.output_size() == 1 && node.attribute_size() == 1, Code::graph, subject,
          "a Constant with {} inputs, {} outputs and {} values; expected 0, 1 and 1", node.input_size(),
          node.output_size(), node.attribute_size());
  const std::string &form = node.attribute(0).name();
  graph::Value value{.name = node.output(0), .type = {}, .origin = Origin::constant, .array = {}};
  if (const TensorProto *proto = constant_tensor(node)) {
    Tensor tensor = parse_tensor(*proto, subject);
    value.type = {unbound_.floats.computed(tensor.type.dtype), tensor.type.shape};
    unbound_.deferred.emplace(add_value(std::move(value), subject), std::move(tensor));
    return;
  }
  const graph::Attributes attributes = read_attributes(node, subject, storage_);
  if (form == "value_int") {
    value.array = Array::from_integers({DType::i64, {}}, {attributes.integer(form, 0)});
  } else if (form == "value_ints") {
    value.array = Array::integers(attributes.integers(form));
  } else if (form == "value_float") {
    value.array = Array::scalar(DType::f32, attributes.real(form, 0));
  } else if (form == "value_floats") {
    const std::vector<double> values = attributes.reals(form);
    value.array = Array::from_doubles({DType::f32, {static_cast<std::int64_t>(values.size())}}, values);
  } else {
    fail(Code::unsupported, subject, "the Constant's value is given as \"{}\"; only numbers are supported", form);
  }
  value.type = value.array.type();
  add_value(std::move(value), subject);
}

void GraphBuilder::add_node(const NodeProto &proto) {
  const std::string subject = subject_of(proto);
  graph::Node node;
  node.op = proto.op_type();
  node.name = proto.name();
  if (!is_default_domain(proto.domain())) {
    node.op = proto.domain() + "::" + proto.op_type();
    require(imported(proto_.opset_import(), proto.domain(), path_).has_value(), Code::unsupported, subject,
            "{} is of a domain that opset_import does not name", node.op);
  }
  node.attributes = read_attributes(proto, subject, storage_);
  unbound_.floats.compute(node.attributes);
  for (const std::string &input : proto.input()) {
    const ValueId id = input.empty() ? ValueId::none : unbound_.graph.find(input);
    require(input.empty() || id != ValueId::none, Code::graph, subject, "reads \"{}\", which nothing defines",
            printable(input));
    node.inputs.push_back(id);
  }
  for (const std::string &output : proto.output())
    node.outputs.push_back(output.empty() ? ValueId::none : unbound_.graph.find(output));
  upgrade(node, proto);
  unbound_.graph.add_node(std::move(node));
}

// False only if the value is a constant bool that is false.
bool GraphBuilder::is_true(const std::string &value) const {
  const ValueId id = unbound_.graph.find(value);
  const auto found = unbound_.deferred.find(id);
  if (found == unbound_.deferred.end()) return true;
  const Tensor &tensor = found->second;
  if (tensor.external || tensor.type.dtype != DType::boolean || tensor.bytes != 1) return true;
  std::byte bit{};
  storage_.read(tensor, &bit);
  return bit != std::byte{0};
}

// Rewrites a node of an older opset in the form of the newest one. A Dropout that does nothing becomes an Identity.
void GraphBuilder::upgrade(graph::Node &node, const NodeProto &proto) const {
  const bool sized = node.inputs.size() > 1 && node.inputs[1] != ValueId::none;
  if (node.op == "Split" && !sized && !node.attributes.has("num_outputs"))
    node.attributes.set("num_outputs", static_cast<std::int64_t>(node.outputs.size()));
  if (node.op == "Dropout" && !node.inputs.empty()) {
    const bool trains = node.inputs.size() > 2 && node.inputs[2] != ValueId::none && is_true(proto.input(2));
    const bool masks = node.outputs.size() > 1 && reads_.contains(proto.output(1)) && !proto.output(1).empty();
    if (trains || masks) {  // `seed` is the only attribute with a meaning here
      node.attributes = node.attributes.has("seed") ? graph::Attributes{{"seed", node.attributes.integer("seed", 0)}}
                                                    : graph::Attributes{};
      return;
    }
    node.op = "Identity";
    node.inputs.resize(1);
    node.outputs.resize(1);
    node.attributes = {};
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
    const ValueId id = unbound_.graph.find(output.name());
    require(id != ValueId::none, Code::graph, output.name(), "no node produces this output of the graph");
    unbound_.graph.outputs.push_back(id);
    unbound_.outputs.push_back(read_output(output));
  }
}

}  // namespace

const TensorProto *constant_tensor(const NodeProto &node) {
  if (!is_constant(node) || node.attribute_size() != 1) return nullptr;
  const AttributeProto &attribute = node.attribute(0);
  constexpr std::int32_t kTensor = 4;
  return attribute.name() == "value" && attribute.type() == kTensor && attribute.has_t() ? &attribute.t() : nullptr;
}

UnboundGraph build_unbound(const ModelProto &proto, const Storage &storage) {
  return GraphBuilder(proto, storage).build();
}

}  // namespace protrain::onnx_import
