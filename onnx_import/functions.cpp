// Replaces each call of a function by a copy of the function's nodes. Nodes of the copy that are calls themselves are
// replaced in the same way. All parts of a copy are counted before they are made.
#include "onnx_import/functions.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/names.h"
#include "onnx_import/versions.h"

namespace protrain::onnx_import {

namespace {

struct Function {
  const FunctionProto *proto;
  std::string title;                                                        // for messages
  std::unordered_map<std::string_view, const AttributeProto *> attributes;  // nullptr: no default
};

// A call of a function that is being expanded.
struct Call {
  const NodeProto &node;
  const Function &function;
  std::string scope;                                   // prefix for the names of its values and nodes
  std::unordered_map<std::string, std::string> names;  // names of values in the function -> in the graph
  std::unordered_map<std::string_view, const AttributeProto *> attributes;  // attributes that the caller gives
};

template <typename Proto>
std::string key_of(const Proto &proto, const std::string &name) {
  return (is_default_domain(proto.domain()) ? "" : proto.domain()) + '\0' + name + '\0' + proto.overload();
}

std::uint64_t parts_of(const AttributeProto &attribute) {
  const TensorProto &tensor = attribute.t();
  return 2 + static_cast<std::uint64_t>(attribute.strings_size() + attribute.tensors_size() + attribute.graphs_size() +
                                        attribute.sparse_tensors_size() + tensor.string_data_size() +
                                        tensor.external_data_size());
}

// Replaces all calls of functions in a model, so that no later code sees functions. A small file of functions that call
// each other can expand to a huge graph. So charge() counts every part before it is made.
class Inliner {
 public:
  Inliner(ModelProto &model, Messages &messages, const std::string &path)
      : model_(model), messages_(messages), path_(path) {}

  void run() {
    if (const auto version = imported(model_.opset_import(), "", path_)) check_opset_with_functions(*version, path_);
    for (const FunctionProto &proto : model_.functions()) add_function(proto);
    take_names(model_.graph());
    replace_calls(*model_.mutable_graph());
    import_domains();
    model_.clear_functions();
  }

 private:
  using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;

  void add_function(const FunctionProto &proto);
  void take_names(const GraphProto &graph);
  void replace_calls(GraphProto &graph);
  void add(NodeProto &node);
  void expand(const NodeProto &node, const Function &function);
  void bind_names(Call &call);
  void copy(const NodeProto &body, const Call &call);
  void copy_attribute(const AttributeProto &body, const Call &call, NodeProto &to);
  void copy_graph(const GraphProto &body, const Call &call, GraphProto &to);
  void check_operator_of(const NodeProto &body, const Call &call, const std::string &subject) const;
  void import_domains();
  std::string unique(const std::string &name);
  void charge(std::uint64_t parts, std::uint64_t bytes);

  ModelProto &model_;  // one of messages_
  Messages &messages_;
  const std::string &path_;
  Nodes *nodes_ = nullptr;  // of the graph that is being rewritten
  std::map<std::string, Function> functions_;
  std::vector<const Function *> open_;  // calls being expanded, outermost first
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> suffixes_;  // the last suffix given to each name
  std::uint64_t parts_ = 0, bytes_ = 0;
};

void Inliner::add_function(const FunctionProto &proto) {
  check_name(proto.name(), path_, "function");
  check_text(proto.domain(), path_);
  check_text(proto.overload(), path_);
  const std::string title = is_default_domain(proto.domain()) ? proto.name() : proto.domain() + "::" + proto.name();
  if (const auto version = imported(proto.opset_import(), "", title)) check_opset_with_functions(*version, title);
  Function function{&proto, title, {}};
  for (const std::string &name : proto.attribute()) function.attributes.emplace(name, nullptr);
  for (const AttributeProto &preset : proto.attribute_proto())
    require(function.attributes.emplace(preset.name(), &preset).second, Code::graph, title,
            "attribute \"{}\" is listed twice", printable(preset.name()));
  require(functions_.emplace(key_of(proto, proto.name()), std::move(function)).second, Code::graph, title,
          "duplicate function: two of them have that domain, name and overload");
}

void Inliner::take_names(const GraphProto &graph) {
  for (const TensorProto &tensor : graph.initializer()) taken_.insert(tensor.name());
  for (const ValueInfo &input : graph.input()) taken_.insert(input.name());
  for (const NodeProto &node : graph.node()) {
    taken_.insert(node.output().begin(), node.output().end());
    for (const AttributeProto &attribute : node.attribute())
      if (attribute.has_g()) take_names(attribute.g());
  }
}

// Replaces the calls in a graph and in the bodies of its control flow nodes.
void Inliner::replace_calls(GraphProto &graph) {
  Nodes *const outer = nodes_;
  auto &nodes = messages_.make<Nodes>();
  nodes.Swap(graph.mutable_node());
  for (NodeProto &node : nodes) {
    charge(static_cast<std::uint64_t>(1 + node.input_size() + node.output_size() + node.attribute_size()), 0);
    for (AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g()) replace_calls(*attribute.mutable_g());
    nodes_ = graph.mutable_node();
    add(node);
  }
  nodes_ = outer;
}

void Inliner::charge(std::uint64_t parts, std::uint64_t bytes) {
  parts_ += parts;
  bytes_ += bytes;
  require(parts_ <= kMaxInlinedParts && bytes_ <= kMaxInlinedBytes, Code::limit, path_,
          "inlined nodes: its functions would become more than {} parts or {} MiB", kMaxInlinedParts,
          kMaxInlinedBytes >> 20);
}

std::string Inliner::unique(const std::string &name) {
  if (taken_.insert(name).second) return name;
  for (int &suffix = suffixes_[name];;) {
    std::string other = fmt::format("{}_{}", name, ++suffix);
    if (taken_.insert(other).second) return other;
  }
}

// Adds a node of `messages_`, without copying it, to the graph that is being rewritten. If the node is a call, expands
// it instead.
void Inliner::add(NodeProto &node) {
  const auto found = functions_.find(key_of(node, node.op_type()));
  if (found != functions_.end()) return expand(node, found->second);
  node.clear_overload();
  nodes_->UnsafeArenaAddAllocated(&node);
}

void Inliner::expand(const NodeProto &node, const Function &function) {
  if (std::ranges::find(open_, &function) != open_.end()) {
    std::vector<std::string> titles;
    for (const Function *one : open_) titles.push_back(one->title);
    fail(Code::graph, function.title, "call cycle: {} -> {}", printable(fmt::format("{}", fmt::join(titles, " -> "))),
         function.title);
  }
  require(open_.size() < kMaxCallDepth, Code::limit, function.title, "calls nested deeper than {}", kMaxCallDepth);
  charge(1, 0);
  check_text(node.name(), function.title);
  Call call{node, function, unique(node.name().empty() ? function.proto->name() : node.name()), {}, {}};
  bind_names(call);
  for (const AttributeProto &attribute : node.attribute())
    require(call.attributes.emplace(attribute.name(), &attribute).second, Code::graph, call.scope,
            "attribute \"{}\" is given twice", printable(attribute.name()));
  open_.push_back(&function);
  for (const NodeProto &body : function.proto->node()) copy(body, call);
  open_.pop_back();
  // The call needs an Identity for an output that is also an input of the function, or that the function lists twice.
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string &made = call.names.at(function.proto->output(i));
    if (node.output(i).empty() || node.output(i) == made) continue;
    auto &identity = messages_.make<NodeProto>();
    identity.set_op_type("Identity");
    identity.set_name(call.scope);
    identity.add_input(made);
    identity.add_output(node.output(i));
    nodes_->UnsafeArenaAddAllocated(&identity);
  }
}

void Inliner::bind_names(Call &call) {
  const FunctionProto &function = *call.function.proto;
  const std::string &subject = call.scope;
  require(call.node.input_size() <= function.input_size(), Code::graph, subject, "{} takes {} inputs at most, not {}",
          call.function.title, function.input_size(), call.node.input_size());
  require(call.node.output_size() <= function.output_size(), Code::graph, subject,
          "{} makes {} outputs at most, not {}", call.function.title, function.output_size(), call.node.output_size());
  const auto define = [&](const std::string &name, const std::string &outside) {
    check_text(name, call.function.title);
    require(call.names.emplace(name, outside).second, Code::graph, call.function.title,
            "duplicate value: \"{}\" is defined twice", name);
  };
  charge(static_cast<std::uint64_t>(function.input_size() + function.output_size()), 0);
  for (int i = 0; i < function.input_size(); ++i)
    define(function.input(i), i < call.node.input_size() ? call.node.input(i) : "");
  std::unordered_map<std::string, std::string> outputs;
  for (int i = 0; i < call.node.output_size(); ++i)
    if (!call.node.output(i).empty()) outputs.emplace(function.output(i), call.node.output(i));
  for (const NodeProto &body : function.node())
    for (const std::string &output : body.output()) {
      if (output.empty()) continue;
      charge(1, call.scope.size() + output.size());
      const auto found = outputs.find(output);
      define(output, found != outputs.end() ? found->second : unique(call.scope + "/" + output));
    }
  for (const std::string &output : function.output())
    require(call.names.contains(output), Code::graph, call.function.title,
            "no node produces the function's output \"{}\"", printable(output));
}

// Copies a node of a function into the graph. Renames values to their names in the graph. Replaces a reference to an
// attribute of the call by that attribute's value.
void Inliner::copy(const NodeProto &body, const Call &call) {
  check_text(body.name(), call.function.title);
  check_text(body.op_type(), call.function.title);
  auto &node = messages_.make<NodeProto>();
  node.set_op_type(body.op_type());
  node.set_domain(body.domain());
  node.set_overload(body.overload());
  // PyTorch's exporter notes in a node's metadata which PyTorch call the node comes from. If the function's node has no
  // metadata, the copy gets the metadata of the node that calls the function.
  *node.mutable_metadata_props() = body.metadata_props_size() > 0 ? body.metadata_props() : call.node.metadata_props();
  node.set_name(call.scope + "/" + (body.name().empty() ? body.op_type() : body.name()));
  charge(static_cast<std::uint64_t>(1 + body.input_size() + body.output_size()), node.ByteSizeLong());
  check_operator_of(body, call, node.name());
  for (const std::string &input : body.input()) {
    const auto found = call.names.find(input);
    require(input.empty() || found != call.names.end(), Code::graph, node.name(),
            "reads \"{}\", which nothing defines in {}", printable(input), call.function.title);
    charge(0, input.empty() ? 0 : found->second.size());
    node.add_input(input.empty() ? "" : found->second);
  }
  for (const std::string &output : body.output()) node.add_output(output.empty() ? "" : call.names.at(output));
  for (const AttributeProto &attribute : body.attribute()) copy_attribute(attribute, call, node);
  add(node);
}

void Inliner::copy_attribute(const AttributeProto &body, const Call &call, NodeProto &to) {
  const AttributeProto *from = &body;
  charge(1, 0);
  if (body.has_ref_attr_name()) {
    const std::string &name = body.ref_attr_name(), subject = to.name() + "." + printable(body.name());
    const auto known = call.function.attributes.find(name);
    require(known != call.function.attributes.end(), Code::graph, subject,
            "ref_attr_name \"{}\", an attribute that {} does not have", printable(name), call.function.title);
    const auto given = call.attributes.find(name);
    from = given != call.attributes.end() ? given->second : known->second;
    if (from == nullptr) return;  // no value and no default: the node goes without the attribute
    require(from->type() == body.type(), Code::graph, subject,
            "of type {}, but the attribute \"{}\" it refers to is of type {}", body.type(), printable(name),
            from->type());
  }
  charge(parts_of(*from), from->ByteSizeLong());
  AttributeProto &attribute = *to.add_attribute();
  attribute = *from;
  attribute.set_name(body.name());
  if (attribute.has_g()) copy_graph(from->g(), call, *attribute.mutable_g());
}

// Copies the body of a control flow node that is part of a function. The names that the body defines get the call's
// prefix too. The body may read names of the graph around it.
void Inliner::copy_graph(const GraphProto &body, const Call &call, GraphProto &to) {
  Call inside{call.node, call.function, call.scope, call.names, call.attributes};
  charge(inside.names.size() + static_cast<std::uint64_t>(body.node_size()), 0);
  const auto rename = [&](std::string &name) {
    check_text(name, call.function.title);
    charge(1, call.scope.size() + name.size());
    name = inside.names[name] = unique(call.scope + "/" + name);
  };
  for (ValueInfo &input : *to.mutable_input()) rename(*input.mutable_name());
  for (TensorProto &tensor : *to.mutable_initializer()) rename(*tensor.mutable_name());
  for (NodeProto &node : *to.mutable_node())
    for (std::string &output : *node.mutable_output())
      if (!output.empty()) rename(output);
  to.clear_node();
  Nodes *const outer = nodes_;
  nodes_ = to.mutable_node();
  for (const NodeProto &node : body.node()) copy(node, inside);
  nodes_ = outer;
  for (ValueInfo &output : *to.mutable_output()) {
    const auto found = inside.names.find(output.name());
    if (found != inside.names.end()) output.set_name(found->second);
  }
}

void Inliner::check_operator_of(const NodeProto &body, const Call &call, const std::string &subject) const {
  if (functions_.contains(key_of(body, body.op_type()))) return;
  const auto version = imported(call.function.proto->opset_import(), body.domain(), subject);
  require(version.has_value(), Code::unsupported, subject, "{} is of a domain that {} does not import",
          printable(body.op_type()), call.function.title);
  if (is_default_domain(body.domain())) check_operator(body.op_type(), *version, subject);
}

// Adds the domains that functions import to those that the model imports.
void Inliner::import_domains() {
  const auto plain = [](const std::string &domain) { return is_default_domain(domain) ? "" : domain; };
  std::set<std::string> known;
  for (const OpsetImport &import : model_.opset_import()) known.insert(plain(import.domain()));
  for (const FunctionProto &function : model_.functions())
    for (const OpsetImport &import : function.opset_import())
      if (known.insert(plain(import.domain())).second) *model_.add_opset_import() = import;
}

}  // namespace

void inline_functions(ModelProto &model, Messages &messages, const std::string &path) {
  if (model.functions_size() > 0) Inliner(model, messages, path).run();
}

}  // namespace protrain::onnx_import
