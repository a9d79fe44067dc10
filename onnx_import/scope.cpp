#include "onnx_import/scope.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/arity.h"
#include "onnx_import/attributes.h"
#include "onnx_import/names.h"
#include "onnx_import/older.h"
#include "onnx_import/torch_calls.h"
#include "onnx_import/versions.h"
#include "ops/control_flow.h"

namespace protrain::onnx_import {

namespace {

using graph::Array;
using graph::Origin;
using graph::ValueId;

// The most values that bodies may read from outside. Nested bodies pass a value on from one to the next, so a small
// file could ask for a huge number of such reads.
constexpr std::size_t kMostCaptured = 1 << 18;

constexpr const char *kRuntimeDomain = "com.microsoft";  // of ONNX Runtime's own operators
// Attributes that the library gives to nodes, and that no operator of ONNX or ONNX Runtime has.
constexpr const char *kOwnAttributes[] = {
    "detach", "focal",  "key",         "label_smoothing", "padding_idx", "panels",  "piece",    "running", "samples",
    "signed", "stored", "temperature", "trans_a",         "trans_b",     "trans_w", "unbiased", "z_loss",  "zero_row"};

bool is_constant(const NodeProto &node) { return node.op_type() == "Constant" && is_default_domain(node.domain()); }

// True for QuantizeLinear and DequantizeLinear, both ONNX's operators and ONNX Runtime's operators of the same names.
// ONNX Runtime's operators take some types that ONNX allows only from opset 21 on.
bool is_quantization(const NodeProto &node) {
  return one_of(node.op_type(), {"QuantizeLinear", "DequantizeLinear"}) &&
         (is_default_domain(node.domain()) || node.domain() == kRuntimeDomain);
}

// True for nodes whose first input may hold two elements in a byte.
bool takes_packed(const NodeProto &node) {
  return (is_quantization(node) && node.op_type() == "DequantizeLinear") ||
         (node.domain() == kRuntimeDomain && node.op_type() == "GatherBlockQuantized");
}

bool has_bodies(const NodeProto &node) {
  return is_default_domain(node.domain()) && ops::is_control_flow(node.op_type());
}

}  // namespace

std::string subject_of(const NodeProto &node) {
  if (!node.name().empty()) return printable(node.name());
  return (node.op_type().empty() ? "node" : printable(node.op_type())) +
         (node.output_size() > 0 ? " -> " + printable(node.output(0)) : "");
}

const TensorProto *constant_tensor(const NodeProto &node) {
  if (!is_constant(node) || node.attribute_size() != 1) return nullptr;
  const AttributeProto &attribute = node.attribute(0);
  constexpr std::int32_t kTensor = 4;
  return attribute.name() == "value" && attribute.type() == kTensor && attribute.has_t() ? &attribute.t() : nullptr;
}

Scope::Scope(ScopeSources &sources, const GraphProto &proto, graph::Graph &graph, Scope *outer)
    : sources_(sources), proto_(proto), graph_(graph), outer_(outer) {
  collect_reads(proto);
}

// Collects the names that the graph's nodes and their bodies read. A name counts even if the body that reads it also
// defines it.
void Scope::collect_reads(const GraphProto &proto) {
  for (const NodeProto &node : proto.node()) {
    const bool dequantises = takes_packed(node) && node.input_size() > 0;
    reads_.insert(node.input().begin(), node.input().end());
    reads_elements_.insert(node.input().begin() + (dequantises ? 1 : 0), node.input().end());
    for (const AttributeProto &attribute : node.attribute())
      if (attribute.has_g()) collect_reads(attribute.g());
  }
  for (const ValueInfo &output : proto.output())
    for (auto *names : {&reads_, &reads_elements_}) names->insert(output.name());
}

bool Scope::packs(const std::string &name, const Tensor &tensor) const {
  return tensor.four_bits && !reads_elements_.contains(name);
}

graph::Type Scope::type_of(const std::string &name, const Tensor &tensor) const {
  if (packs(name, tensor)) return {DType::u8, {static_cast<std::int64_t>(tensor.bytes)}};
  return {sources_.unbound.floats.computed(tensor.type.dtype), tensor.type.shape};
}

void Scope::require_new(const std::string &name, const std::string &subject) const {
  const bool stored = outer_ == nullptr && sources_.unbound.initializers.contains(name);
  require(!names_.contains(name) && !stored, Code::graph, subject, "duplicate value: \"{}\" is defined twice", name);
}

ValueId Scope::define(graph::Value value, const std::string &subject) {
  require_new(value.name, subject);
  const std::string name = value.name;
  return names_[name] = graph_.add_value(std::move(value));
}

ValueId Scope::define_initializer(graph::Value value) {
  const std::string name = value.name;
  return names_[name] = graph_.add_value(std::move(value));
}

// Adds a constant whose values are read when the dims are bound. Even a constant of a body is added to the main graph,
// and the body reads it from there.
void Scope::add_stored(const std::string &name, const Tensor &tensor, const std::string &subject) {
  require_new(name, subject);
  graph::Graph &main = sources_.unbound.graph;
  const graph::Type type = type_of(name, tensor);
  const ValueId id = main.add_value({.name = name, .type = type, .origin = Origin::constant, .array = {}});
  if (packs(name, tensor)) sources_.unbound.packed.insert(id);
  sources_.unbound.deferred.emplace(id, tensor);
  names_[name] = from_main(id);
}

ValueId Scope::capture(ValueId outside) {
  const auto found = captured_.find(outside);
  if (found != captured_.end()) return found->second;
  require(++sources_.captured <= kMostCaptured, Code::limit, sources_.storage.model().path(),
          "bodies of control flow read more than {} values from outside", kMostCaptured);
  const graph::Value &value = outer_->graph_.value(outside);
  const Origin origin = value.origin == Origin::initializer ? Origin::initializer : Origin::input;
  const ValueId id = graph_.add_value({.name = value.name, .type = {}, .origin = origin, .array = {}});
  graph_.inputs.push_back(id);
  captured_.emplace(outside, id);
  outside_.emplace(id, outside);
  return id;
}

ValueId Scope::from_main(ValueId in_main) { return outer_ == nullptr ? in_main : capture(outer_->from_main(in_main)); }

ValueId Scope::in_main(ValueId id) const {
  if (outer_ == nullptr) return id;
  const auto found = outside_.find(id);
  return found == outside_.end() ? ValueId::none : outer_->in_main(found->second);
}

ValueId Scope::find(const std::string &name) {
  const auto found = names_.find(name);
  if (found != names_.end()) return found->second;
  const ValueId outside = outer_ == nullptr ? ValueId::none : outer_->find(name);
  return outside == ValueId::none ? outside : names_[name] = capture(outside);
}

void Scope::add_nodes() {
  for (const NodeProto &node : proto_.node()) add_outputs(node);
  for (const NodeProto &node : proto_.node())
    if (!is_constant(node)) add_node(node);
  graph_.sort();
}

void Scope::add_outputs(const NodeProto &node) {
  const std::string subject = subject_of(node);
  check_text(node.name(), subject);
  check_name(node.op_type(), subject, "operator");
  check_text(node.domain(), subject);
  if (is_default_domain(node.domain())) check_operator(node.op_type(), sources_.opset, subject);
  if (!is_constant(node)) check_arity(node, sources_.opset, subject);
  bool any = false;
  for (const std::string &output : node.output()) {
    check_text(output, subject);
    any = any || !output.empty();
  }
  require(any, Code::graph, subject, "a node without outputs");
  if (is_constant(node)) return add_constant(node, subject);
  for (const std::string &output : node.output())
    if (!output.empty()) define({.name = output, .type = {}, .array = {}}, subject);
}

void Scope::add_constant(const NodeProto &node, const std::string &subject) {
  require(node.input_size() == 0 && node.output_size() == 1 && node.attribute_size() == 1, Code::graph, subject,
          "a Constant with {} inputs, {} outputs and {} values; expected 0, 1 and 1", node.input_size(),
          node.output_size(), node.attribute_size());
  const std::string &form = node.attribute(0).name(), &name = node.output(0);
  if (const TensorProto *proto = constant_tensor(node)) return add_stored(name, parse_tensor(*proto, subject), subject);
  const graph::Attributes attributes = read_attributes(node, subject, sources_.storage);
  Array array;
  if (form == "value_int") {
    array = Array::from_integers({DType::i64, {}}, {attributes.integer(form, 0)});
  } else if (form == "value_ints") {
    array = Array::integers(attributes.integers(form));
  } else if (form == "value_float") {
    array = Array::scalar(DType::f32, attributes.real(form, 0));
  } else if (form == "value_floats") {
    const std::vector<double> values = attributes.reals(form);
    array = Array::from_doubles({DType::f32, {static_cast<std::int64_t>(values.size())}}, values);
  } else {
    fail(Code::unsupported, subject, "the Constant's value is given as \"{}\"; only numbers are supported", form);
  }
  require_new(name, subject);
  names_[name] = from_main(sources_.unbound.graph.add_constant(name, std::move(array)));
}

void Scope::add_node(const NodeProto &proto) {
  const std::string subject = subject_of(proto);
  graph::Node node;
  node.op = proto.op_type();
  node.name = proto.name();
  if (!is_default_domain(proto.domain())) {
    node.op = proto.domain() + "::" + proto.op_type();
    const auto version = imported(sources_.model.opset_import(), proto.domain(), sources_.storage.model().path());
    // A file need not import ONNX Runtime's domain: the domain has only one version, and some tools of ONNX Runtime
    // write files without the import.
    require(version.has_value() || proto.domain() == kRuntimeDomain, Code::unsupported, subject,
            "{} is of a domain that opset_import does not name", node.op);
    if (is_quantization(proto)) node.op = proto.op_type();
  }
  node.attributes = read_attributes(proto, subject, sources_.storage);
  for (const char *own : kOwnAttributes) node.attributes.erase(own);
  if (node.op == "MatMul") node.attributes.erase("alpha");
  if (proto.domain() == kBlockedDomain) node.attributes.set("block", sources_.block);
  sources_.unbound.floats.compute(node.attributes);
  for (const std::string &input : proto.input()) {
    const ValueId id = input.empty() ? ValueId::none : find(input);
    require(input.empty() || id != ValueId::none, Code::graph, subject, "reads \"{}\", which nothing defines",
            printable(input));
    node.inputs.push_back(id);
  }
  for (const std::string &output : proto.output())
    node.outputs.push_back(output.empty() ? ValueId::none : names_.at(output));
  // Gives an absent first output a value that nothing reads. Later code need not ask whether a first output is there.
  if (node.outputs[0] == ValueId::none)
    node.outputs[0] =
        graph_.add_value({.name = (node.name.empty() ? node.op : node.name) + "/unread", .type = {}, .array = {}});
  if (has_bodies(proto)) add_bodies(proto, subject, node);
  const OlderForm *older = is_default_domain(proto.domain()) ? older_form(node.op, sources_.opset) : nullptr;
  if (older != nullptr) convert_older(*older, graph_, node, subject);
  upgrade(node, proto);
  if (is_detach(proto)) node.attributes.set("detach", std::int64_t{1});
  if (const auto padding = padding_of(proto)) node.attributes.set("padding_idx", *padding);
  if (is_quantization(proto) || takes_packed(proto)) describe_four_bits(node, proto);
  graph_.add_node(std::move(node));
}

// Returns the tensor of an initializer or a constant; nullptr for other values.
const Tensor *Scope::stored(ValueId id) const {
  const UnboundGraph &unbound = sources_.unbound;
  const ValueId main = id == ValueId::none ? id : in_main(id);
  if (main == ValueId::none) return nullptr;
  if (const auto found = unbound.deferred.find(main); found != unbound.deferred.end()) return &found->second;
  const auto found = unbound.initializers.find(unbound.graph.value(main).name);
  return found == unbound.initializers.end() ? nullptr : &found->second;
}

// If the node reads or makes integers of four bits, sets attributes that say so. A node that dequantises also gets
// attributes for the shape of the integers and for whether they are signed, because its input is only a vector of
// packed bytes. A node that quantises needs no other attributes: it makes a whole byte for each integer, and only
// clamps to the range of four bits.
void Scope::describe_four_bits(graph::Node &node, const NodeProto &proto) const {
  const bool dequantises = takes_packed(proto);
  const std::size_t input = dequantises ? 0 : 2;  // the integers that are given, or zero points of the result's type
  const Tensor *tensor = node.inputs.size() > input ? stored(node.inputs[input]) : nullptr;
  bool four_bits = tensor != nullptr && tensor->four_bits;
  if (dequantises) four_bits = four_bits && sources_.unbound.packed.contains(in_main(node.inputs[0]));
  for (const AttributeProto &attribute : proto.attribute())
    four_bits = four_bits || (!dequantises && attribute.name() == "output_dtype" &&
                              has_four_bits(static_cast<std::int32_t>(attribute.i())));
  if (!four_bits) return;
  node.attributes.set("bits", std::int64_t{4});
  if (!dequantises) return;
  node.attributes.set("signed", std::int64_t{tensor->type.dtype == DType::i8});
  node.attributes.set("shape", tensor->type.shape);
}

void Scope::add_bodies(const NodeProto &proto, const std::string &subject, graph::Node &node) {
  std::map<std::string, const GraphProto *> bodies;
  for (const AttributeProto &attribute : proto.attribute()) {
    const std::string &name = attribute.name();
    const bool is_body = node.op == "If" ? name == "then_branch" || name == "else_branch" : name == "body";
    require(attribute.has_g() == is_body, Code::graph, subject, "the attribute {} {} a graph", printable(name),
            is_body ? "must be" : "may not be");
    if (is_body) bodies.emplace(name, &attribute.g());
  }
  for (const auto &[name, body] : bodies) {
    std::vector<ValueId> captured;
    graph::Body made = read_body(*body, subject, captured);
    graph::Bodies &all = sources_.unbound.bodies;
    node.attributes.set(name, static_cast<std::int64_t>(all.size()));
    all.push_back(std::move(made));
    // ONNX lets a node leave out its last inputs. Places for them are added here, because the values that the body
    // reads come after all inputs of the node.
    if (bodies.size() == 1) node.inputs.resize(std::max(node.inputs.size(), all.back().own), ValueId::none);
    node.inputs.insert(node.inputs.end(), captured.begin(), captured.end());
  }
}

// Sets `captured` to the values of this scope that the body reads.
graph::Body Scope::read_body(const GraphProto &proto, const std::string &subject, std::vector<ValueId> &captured) {
  graph::Body body;
  Scope scope(sources_, proto, body.graph, this);
  require(proto.output_size() > 0, Code::graph, subject, "a body without outputs");
  for (const ValueInfo &input : proto.input()) {
    check_name(input.name(), subject, "input of a body");
    body.graph.inputs.push_back(
        scope.define({.name = input.name(), .type = {}, .origin = Origin::input, .array = {}}, subject));
  }
  body.own = body.graph.inputs.size();
  for (const TensorProto &tensor : proto.initializer()) {
    check_name(tensor.name(), subject, "initializer");
    const Tensor parsed = parse_tensor(tensor, tensor.name());
    if (scope.is_read(tensor.name())) scope.add_stored(tensor.name(), parsed, subject);
  }
  scope.add_nodes();
  for (const ValueInfo &output : proto.output()) {
    const ValueId id = scope.find(output.name());
    require(id != ValueId::none, Code::graph, subject, "no node produces \"{}\", an output of the body",
            printable(output.name()));
    body.graph.outputs.push_back(id);
  }
  for (std::size_t i = body.own; i < body.graph.inputs.size(); ++i)
    captured.push_back(scope.outside_.at(body.graph.inputs[i]));
  return body;
}

// False only if the value is a constant bool that is false.
bool Scope::is_true(ValueId value) const {
  const auto found = sources_.unbound.deferred.find(in_main(value));
  if (found == sources_.unbound.deferred.end()) return true;
  const Tensor &tensor = found->second;
  if (tensor.external || tensor.type.dtype != DType::boolean || tensor.bytes != 1) return true;
  std::byte bit{};
  sources_.storage.read(tensor, &bit);
  return bit != std::byte{0};
}

// Rewrites a node of an older opset in the form of the newest one. A Dropout that does nothing becomes an Identity.
void Scope::upgrade(graph::Node &node, const NodeProto &proto) {
  const bool sized = node.inputs.size() > 1 && node.inputs[1] != ValueId::none;
  if (node.op == "Split" && !sized && !node.attributes.has("num_outputs"))
    node.attributes.set("num_outputs", static_cast<std::int64_t>(node.outputs.size()));
  if (node.op == "Dropout" && !node.inputs.empty()) {
    const bool trains = node.inputs.size() > 2 && node.inputs[2] != ValueId::none && is_true(node.inputs[2]);
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

}  // namespace protrain::onnx_import
