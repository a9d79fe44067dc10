#include "passes/parameters/rounded.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "ops/stored.h"

namespace protrain::passes {

namespace {

using graph::Attributes;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::Value;
using graph::ValueId;

constexpr Rounding kRoundings[] = {{.name = "bf16", .bits = 16},
                                   {.name = "int8", .bits = 8, .block = 128},
                                   {.name = "nf4", .bits = 4, .block = 64, .codes = true},
                                   {.name = "int4", .bits = 4, .block = 128}};

// Returns the axis of the matrix that the product sums over. Returns an empty optional if the node cannot read the
// matrix as stored weights.
std::optional<std::size_t> inner_axis(const Node &node, ValueId matrix) {
  const ops::StoredInput *input = ops::find_stored_input(node.op);
  if (input == nullptr || node.inputs.at(input->matrix) != matrix || std::ranges::count(node.inputs, matrix) != 1)
    return std::nullopt;
  if (node.attributes.integer("trans_a", 0) != 0) return std::nullopt;
  const bool transposed = node.attributes.integer("trans_b", 0) != 0 || node.attributes.integer("trans_w", 0) != 0;
  return transposed ? 1 : 0;
}

// Returns the axis that the first reader of the matrix sums over. If readers sum over different axes, any of them will
// do. Returns an empty optional if some reader has no such axis, or if the matrix is an output of the graph.
std::optional<std::size_t> inner_axis(const Graph &graph, const std::vector<NodeId> &readers, ValueId matrix) {
  std::optional<std::size_t> axis;
  for (const NodeId reader : readers) {
    const std::optional<std::size_t> here = inner_axis(graph.node(reader), matrix);
    if (!here) return std::nullopt;
    axis = axis.value_or(*here);
  }
  const bool is_output = std::ranges::find(graph.outputs, matrix) != graph.outputs.end();
  return is_output ? std::nullopt : axis;
}

// True if the parameter has the rounded form already: the form is bfloat16, and the step computes in bfloat16.
bool has_form(const Value &value, const RoundedMatrix &matrix) {
  return matrix.rounding->block == 0 && value.type.dtype == DType::bf16;
}

// Turns one parameter of the graph into a rounded one.
class Conversion {
 public:
  Conversion(Graph &graph, ValueId id, RoundedMatrix &matrix, std::vector<Node> &nodes)
      : graph_(graph), id_(id), matrix_(matrix), nodes_(nodes), floats_(graph.value(id).type) {}

  void run() {
    const Rounding &rounding = *matrix_.rounding;
    matrix_.others.clear();
    parameters_ = {id_};
    Value value = {.name = matrix_.parameter, .type = floats_, .array = {}};
    const ValueId widened = graph_.add_value(std::move(value));
    graph_.replace_uses(id_, widened);
    const std::string to(name_of(floats_.dtype));
    if (rounding.block == 0) {
      graph_.value(id_).type.dtype = DType::bf16;
      return add("Cast", {id_}, {{"to", to}}, widened);
    }
    Attributes attributes = {{"axis", static_cast<std::int64_t>(matrix_.axis)}, {"block_size", rounding.block}};
    attributes.set("output_dtype", to);
    Type elements = {DType::u8, floats_.shape};
    if (rounding.bits == 4) {
      elements.shape = {divided_up(element_count(floats_.shape), 2)};
      attributes.set("bits", std::int64_t{4});
      attributes.set("shape", floats_.shape);
    }
    graph_.value(id_).type = elements;
    Shape blocks = floats_.shape;
    blocks[matrix_.axis] = divided_up(blocks[matrix_.axis], rounding.block);
    std::vector<ValueId> inputs = {id_};
    if (rounding.codes) {
      attributes.set("code", std::string("nf4"));
      inputs.push_back(scales_of_codes(blocks));
    } else {
      inputs.push_back(add_parameter("/scales", {DType::f32, blocks}));
      inputs.push_back(add_parameter("/zero_points", {DType::u8, blocks}));
    }
    add("DequantizeLinear", inputs, attributes, widened);
  }

  // Returns the rounded parameter, and the parameters that run() added for its scales, zero points or offset.
  const std::vector<ValueId> &parameters() const { return parameters_; }

 private:
  using Type = graph::Type;

  ValueId add_parameter(const std::string &suffix, Type type) {
    const ValueId id = graph_.add_value({.name = matrix_.parameter + suffix,
                                         .type = std::move(type),
                                         .origin = Origin::parameter,
                                         .array = {},
                                         .frozen = true});
    parameters_.push_back(id);
    matrix_.others.push_back(graph_.value(id).name);
    return id;
  }

  ValueId scales_of_codes(const Shape &blocks);

  void add(const std::string &op, std::vector<ValueId> inputs, Attributes attributes, ValueId result) {
    nodes_.push_back({.op = op,
                      .name = matrix_.parameter,
                      .attributes = std::move(attributes),
                      .inputs = std::move(inputs),
                      .outputs = {result}});
  }
  ValueId add(const std::string &op, std::vector<ValueId> inputs, Attributes attributes, const Shape &shape) {
    const ValueId made =
        graph_.add_value({.name = matrix_.parameter + "/scales", .type = {DType::f32, shape}, .array = {}});
    add(op, std::move(inputs), std::move(attributes), made);
    return made;
  }

  Graph &graph_;
  const ValueId id_;
  RoundedMatrix &matrix_;
  std::vector<Node> &nodes_;
  const Type floats_;  // the parameter's type before rounding
  std::vector<ValueId> parameters_;
};

ValueId Conversion::scales_of_codes(const Shape &blocks) {
  const std::int64_t count = element_count(blocks);
  const ValueId codes = add_parameter("/scale_codes", {DType::u8, {count}}),
                scales = add_parameter("/scale_scales", {DType::f32, {divided_up(count, kScaleBlock)}}),
                offset = add_parameter("/offset", {DType::f32, {1}});
  const ValueId apart =
      add("DequantizeLinear", {codes, scales},
          {{"axis", std::int64_t{0}}, {"block_size", kScaleBlock}, {"code", std::string("dynamic")}}, Shape{count});
  const ValueId sum = add("Add", {apart, offset}, {}, Shape{count});
  return add("Reshape", {sum}, {{"shape", blocks}}, blocks);
}

}  // namespace

const Rounding *find_rounding(std::string_view name) {
  const auto *const found = std::ranges::find(kRoundings, name, &Rounding::name);
  return found == std::end(kRoundings) ? nullptr : found;
}

std::vector<RoundedMatrix> find_rounded(const Graph &graph, const Rounding &rounding) {
  const std::vector<std::vector<NodeId>> readers = graph.consumers();
  std::vector<RoundedMatrix> found;
  for (const ValueId id : graph.weights()) {
    const Value &value = graph.value(id);
    const Shape &shape = value.type.shape;
    if (!value.frozen || shape.size() < 2 || element_count(shape) == 0 || !fits_float32(value.type.dtype)) continue;
    if (rounding.block == 0) {
      if (value.type.dtype != DType::f16) found.push_back({&rounding, value.name, shape});
    } else if (const auto axis = inner_axis(graph, readers[index(id)], id); axis && shape.size() == 2) {
      found.push_back({&rounding, value.name, shape, *axis});
    }
  }
  return found;
}

void round_frozen(Graph &graph, std::vector<RoundedMatrix> &matrices) {
  std::vector<Node> nodes;
  std::vector<ValueId> parameters;
  for (const ValueId id : graph.parameters) {
    const auto found = std::ranges::find(matrices, graph.value(id).name, &RoundedMatrix::parameter);
    if (found == matrices.end() || has_form(graph.value(id), *found)) {
      parameters.push_back(id);
      continue;
    }
    Conversion conversion(graph, id, *found, nodes);
    conversion.run();
    parameters.insert(parameters.end(), conversion.parameters().begin(), conversion.parameters().end());
  }
  graph.parameters = std::move(parameters);
  nodes.insert(nodes.end(), graph.nodes().begin(), graph.nodes().end());
  graph.set_nodes(std::move(nodes));
  graph::verify(graph);
}

}  // namespace protrain::passes
