// Writes the nodes of the main graph anew, in their order. A product x W with an adapted initializer W becomes
// x W + (x P) Q, where P and Q are the adapter's matrices, and P Q is the change of W. A lookup of rows of W also
// becomes a sum: the rows of W plus the rows of P Q.
#include "onnx_import/adapted_model.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/scope.h"

namespace protrain::onnx_import {

namespace {

constexpr std::int32_t kFloatType = 1;  // ONNX's number of float32; all element types here are such numbers
constexpr std::int32_t kNoFloat = 0;    // of integers that are not yet dequantised
constexpr std::int32_t kIntAttribute = 2, kIntsAttribute = 7;  // of attributes: an integer, a list of integers

std::int64_t integer_of(const NodeProto &node, const char *name, std::int64_t fallback) {
  for (const AttributeProto &attribute : node.attribute())
    if (attribute.name() == name) return attribute.i();
  return fallback;
}

double real_of(const NodeProto &node, const char *name, double fallback) {
  for (const AttributeProto &attribute : node.attribute())
    if (attribute.name() == name) return attribute.f();
  return fallback;
}

// Returns the element type of an initializer or a Constant node. Returns 0 for other values.
std::int32_t stored_type(const GraphProto &graph, const std::string &name) {
  for (const TensorProto &tensor : graph.initializer())
    if (tensor.name() == name) return tensor.data_type();
  for (const NodeProto &node : graph.node())
    if (node.output_size() == 1 && node.output(0) == name)
      if (const TensorProto *constant = constant_tensor(node)) return constant->data_type();
  return 0;
}

bool is_float_type(std::int32_t type, const std::string &name) {
  return type != 0 && is_float(stored_dtype_of(type, name));
}

bool reads_as(const NodeProto &node, int input, const std::string &name) {
  return node.input_size() > input && node.input(input) == name;
}

// A node that uses an adapted initializer W in a product, or looks up rows of W.
struct AdaptedReader {
  bool lookup = false;
  bool transposes = false;  // computes with W^T
};

std::optional<AdaptedReader> reader_of(const NodeProto &node, const std::string &w) {
  if (!node.domain().empty()) return {};
  const auto once = std::ranges::count(node.input(), w) == 1;
  if (node.op_type() == "MatMul" && reads_as(node, 1, w) && once) return AdaptedReader{};
  if (node.op_type() == "Gemm" && reads_as(node, 1, w) && once && integer_of(node, "transA", 0) == 0 &&
      real_of(node, "alpha", 1) == 1)
    return AdaptedReader{.transposes = integer_of(node, "transB", 0) != 0};
  if (node.op_type() == "Gather" && reads_as(node, 0, w) && once && integer_of(node, "axis", 0) == 0)
    return AdaptedReader{.lookup = true};
  return {};
}

// True for a node that only passes the matrix `w` on to its readers, perhaps transposed or as another type.
bool passes_on(const NodeProto &node, const std::string &w) {
  const bool one_of_them = one_of(node.op_type(), {"Transpose", "Identity", "DequantizeLinear", "Cast"});
  const bool has_result = node.output_size() > 0 && !node.output(0).empty();
  return one_of_them && has_result && reads_as(node, 0, w) && std::ranges::count(node.input(), w) == 1;
}

using Readers = std::unordered_map<std::string_view, std::vector<const NodeProto *>>;  // of a value, by its name

// Returns the nodes that read each value as their first input.
Readers first_readers(const GraphProto &graph) {
  Readers readers;
  for (const NodeProto &node : graph.node())
    if (node.input_size() > 0) readers[node.input(0)].push_back(&node);
  return readers;
}

// Follows each of `values` through the nodes that may pass it on, and calls pass(node, value) for each such node. If
// pass() returns true, the node's result is followed in the same way. The nodes of a file may be in any order.
template <typename Pass>
void follow(const GraphProto &graph, std::vector<std::string> values, const Pass &pass) {
  const Readers readers = first_readers(graph);
  while (!values.empty()) {
    const std::string value = std::move(values.back());
    values.pop_back();
    const auto found = readers.find(value);
    if (found == readers.end()) continue;
    for (const NodeProto *node : found->second)
      if (passes_on(*node, value) && pass(*node, value)) values.push_back(node->output(0));
  }
}

// Returns the element type of a DequantizeLinear node's result.
std::int32_t dequantised_type(const GraphProto &graph, const NodeProto &node) {
  const auto named = static_cast<std::int32_t>(integer_of(node, "output_dtype", 0));
  if (named != 0) return named;
  const std::int32_t scale = node.input_size() > 1 ? stored_type(graph, node.input(1)) : 0;
  return scale != 0 ? scale : kFloatType;
}

// Returns a name that is not in `taken`, and adds it there: `name` itself, or `name` followed by a number.
std::string fresh(std::set<std::string> &taken, const std::string &name) {
  std::string found = name;
  for (int i = 1; !taken.insert(found).second; ++i) found = fmt::format("{}_{}", name, i);
  return found;
}

}  // namespace

std::int32_t computed_type(const GraphProto &graph, const std::string &initializer) {
  const std::int32_t own = stored_type(graph, initializer);
  if (is_float_type(own, initializer)) return own;
  const NodeProto *dequantises = nullptr;
  follow(graph, {initializer}, [&](const NodeProto &node, const std::string &) {
    if (dequantises == nullptr && node.op_type() == "DequantizeLinear") dequantises = &node;
    return dequantises == nullptr;
  });
  return dequantises != nullptr ? dequantised_type(graph, *dequantises) : kFloatType;
}

AdaptedModel::AdaptedModel(const ModelProto &original, const std::vector<graph::LowRank> &adapters)
    : proto_(messages_.copy(original)) {
  const GraphProto &graph = proto_.graph();
  for (const ValueInfo &input : graph.input()) names_.insert(input.name());
  for (const TensorProto &tensor : graph.initializer()) names_.insert(tensor.name());
  for (const NodeProto &node : graph.node()) {
    names_.insert(node.output().begin(), node.output().end());
    node_names_.insert(node.name());
  }
  for (const graph::LowRank &adapter : adapters) {
    add_inputs(adapter);
    for (const auto &[name, transposed] : adapter.initializers) {
      const std::int32_t type = stored_type(graph, name);
      adapted_[name] = {&adapter, transposed, is_float_type(type, name) ? type : kNoFloat};
    }
  }
  find_adapted();
  rewrite();
  for (const TensorProto &tensor : graph.initializer())
    initializers_.emplace(tensor.name(), parse_tensor(tensor, tensor.name()));
}

void AdaptedModel::add_inputs(const graph::LowRank &adapter) {
  const std::string &w = adapter.initializers.front().name;
  require(stored_type(proto_.graph(), w) != 0, Code::internal, w, "an adapted value is no initializer");
  const std::int32_t type = types_[&adapter] = computed_type(proto_.graph(), w);
  add_input(adapter.a, {0, adapter.in}, type);
  add_input(adapter.b, {adapter.out, 0}, type);
}

// Adds an input, and an empty initializer of the same name, which is the input's default. A dim of 0 in `shape` stands
// for the adapter's rank. In the input this dim is symbolic, because the rank depends on the adapter that is given.
void AdaptedModel::add_input(const std::string &name, const Shape &shape, std::int32_t type) {
  require(names_.insert(name).second, Code::unsupported, printable(name),
          "the model has a value of this name already, so no input for an adapter can have it");
  GraphProto &graph = *proto_.mutable_graph();
  TensorProto &tensor = *graph.add_initializer();
  ValueInfo &input = *graph.add_input();
  tensor.set_name(name);
  tensor.set_data_type(type);
  tensor.set_raw_data("");
  input.set_name(name);
  auto &declared = *input.mutable_type()->mutable_tensor_type();
  declared.set_elem_type(type);
  for (const std::int64_t side : shape) {
    tensor.add_dims(side);
    Dimension &dim = *declared.mutable_shape()->add_dim();
    if (side > 0)
      dim.set_dim_value(side);
    else
      dim.set_dim_param(name + ".rank");
  }
}

// Extends `adapted_`, which holds the adapted initializers. Adds the results of the nodes that only pass an adapted
// value on, perhaps transposed or as another type.
void AdaptedModel::find_adapted() {
  std::vector<std::string> initializers;
  for (const auto &[name, value] : adapted_) initializers.push_back(name);
  follow(proto_.graph(), std::move(initializers), [&](const NodeProto &node, const std::string &w) {
    const std::optional<Adapted> passed = passed_on(node, w);
    return passed && adapted_.emplace(node.output(0), *passed).second;
  });
}

void AdaptedModel::rewrite() {
  GraphProto &graph = *proto_.mutable_graph();
  GraphProto &before = messages_.make<GraphProto>();
  before.mutable_node()->Swap(graph.mutable_node());
  for (NodeProto &node : *before.mutable_node()) {
    std::vector<std::string> changed;
    for (const std::string &input : node.input())
      if (adapted_.contains(input)) changed.push_back(input);
    for (const AttributeProto &attribute : node.attribute())
      if (attribute.has_g()) require_no_reader(attribute.g(), node);
    if (changed.empty())
      *graph.add_node() = std::move(node);
    else
      adapt(std::move(node), changed);
  }
}

// Throws Code::unsupported if the body of `node`, or a body inside it, reads an adapted value of the main graph.
void AdaptedModel::require_no_reader(const GraphProto &body, const NodeProto &node) const {
  for (const NodeProto &inner : body.node()) {
    for (const std::string &input : inner.input())
      if (adapted_.contains(input))
        fail(Code::unsupported, printable(input), "node {} reads it in a body; {}", printable(node.name()),
             advice(input));
    for (const AttributeProto &attribute : inner.attribute())
      if (attribute.has_g()) require_no_reader(attribute.g(), node);
  }
}

// Returns advice for an error: what the user can do if the model cannot get inputs for the adapter of `value`. If the
// file holds the weight as floats, the advice is to merge the adapter. If the file holds it as integers, these cannot
// hold the sum of weight and adapter, so the advice is to save the adapter by itself.
const char *AdaptedModel::advice(const std::string &value) const {
  const std::string &w = adapted_.at(value).adapter->initializers.front().name;
  if (is_float_type(stored_type(proto_.graph(), w), w)) return "merge the adapter instead";
  if (adapted_.at(value).type != kNoFloat) return "save the adapter by itself (--save-adapter DIR)";
  return "save the adapter by itself (--save-adapter DIR), or train on a base that DequantizeLinear dequantises";
}

// If the node only passes on the adapted value `w`, describes the node's result. Returns an empty optional for other
// nodes. Also for a Cast to or from integers: its result is not the weight itself, because a later node applies the
// scale of the integers.
std::optional<AdaptedModel::Adapted> AdaptedModel::passed_on(const NodeProto &node, const std::string &w) const {
  if (!passes_on(node, w)) return {};
  Adapted value = adapted_.at(w);
  if (node.op_type() == "Transpose") value.transposed = !value.transposed;
  if (node.op_type() == "DequantizeLinear") value.type = dequantised_type(proto_.graph(), node);
  if (node.op_type() == "Cast") {
    const auto to = static_cast<std::int32_t>(integer_of(node, "to", 0));
    if (value.type == kNoFloat || !is_float_type(to, w)) return {};
    value.type = to;
  }
  return value;
}

// Adds a node that reads the adapted values `changed`. After a product or a lookup, also adds the nodes that compute
// the change of its result. Throws Code::unsupported for other readers.
void AdaptedModel::adapt(NodeProto node, const std::vector<std::string> &changed) {
  GraphProto &graph = *proto_.mutable_graph();
  const std::string w = changed.front(), result = node.output_size() > 0 ? node.output(0) : "";
  const Adapted value = adapted_.at(w);
  if (changed.size() == 1 && passed_on(node, w)) {
    *graph.add_node() = std::move(node);
    return;
  }
  const bool is_float_matrix = changed.size() == 1 && value.type != kNoFloat;
  const std::optional<AdaptedReader> found = is_float_matrix ? reader_of(node, w) : std::nullopt;
  if (!found)
    fail(Code::unsupported, printable(w),
         "node {} ({}) reads it and is no product or lookup that an adapter's inputs can be added to; {}",
         printable(node.name()), printable(node.op_type()), advice(w));
  const AdaptedReader reader = *found;
  // Adds the product of the adapter's matrices A and B: A^T B^T if W has shape (in, out), B A if it has (out, in).
  const bool in_out = value.transposed != reader.transposes;
  const graph::LowRank &adapter = *value.adapter;
  const std::string first = matrix_for(value, in_out ? transpose_of(adapter.a) : adapter.b);
  const std::string second = matrix_for(value, in_out ? transpose_of(adapter.b) : adapter.a);
  const std::string base = fresh(names_, result + "/base"), inner = fresh(names_, result + "/adapter_inner"),
                    change = fresh(names_, result + "/adapter");
  const std::string x = node.input(reader.lookup ? 1 : 0);
  node.set_output(0, base);
  *graph.add_node() = std::move(node);
  reader.lookup ? add("Gather", {first, x}, inner) : add("MatMul", {x, first}, inner);
  add("MatMul", {inner, second}, change);
  add("Add", {base, change}, result);
}

// Returns the name of the matrix's transpose. The first call for a matrix adds the node that computes the transpose.
std::string AdaptedModel::transpose_of(const std::string &matrix) {
  std::string &name = transposes_[matrix];
  if (!name.empty()) return name;
  name = fresh(names_, matrix + "/transposed");
  AttributeProto &perm = *add("Transpose", {matrix}, name).add_attribute();
  perm.set_name("perm");
  perm.set_type(kIntsAttribute);
  perm.add_ints(1);
  perm.add_ints(0);
  return name;
}

// Returns the name of `matrix`, a matrix of the adapter that changes `value`, in the type of `value`. If the matrix has
// another type, adds a Cast, but only one for each matrix and type.
std::string AdaptedModel::matrix_for(const Adapted &value, const std::string &matrix) {
  if (value.type == types_.at(value.adapter)) return matrix;
  std::string &name = casts_[{matrix, value.type}];
  if (!name.empty()) return name;
  name = fresh(names_, matrix + "/cast");
  AttributeProto &to = *add("Cast", {matrix}, name).add_attribute();
  to.set_name("to");
  to.set_type(kIntAttribute);
  to.set_i(value.type);
  return name;
}

NodeProto &AdaptedModel::add(const char *op, const std::vector<std::string> &inputs, const std::string &output) {
  NodeProto &node = *proto_.mutable_graph()->add_node();
  node.set_op_type(op);
  node.set_name(fresh(node_names_, output));
  for (const std::string &input : inputs) node.add_input(input);
  node.add_output(output);
  return node;
}

}  // namespace protrain::onnx_import
