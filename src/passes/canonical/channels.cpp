// Rules for normalizations that have a scale and a bias for each channel, and for normalizations by a vector's length.
// The channels are axis 1 of x (N, C, d...).
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "passes/canonical/canonical.h"
#include "passes/passes.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

void require_channels(const Node &node, const Shape &x) {
  require(x.size() >= 2, Code::shape, node.name, "{} of {}, which has no axis 1 for channels", node.op, to_text(x));
}

// Reshapes `values` (C) so that they broadcast over x (N, C, d...). If there is one number per group, repeats it for
// the group's channels.
ValueId along_channels(Canonical &c, const Node &node, ValueId values, const Shape &x) {
  require_channels(node, x);
  const std::int64_t count = element_count(c.shape(values)), channels = x[1];
  if (count != channels) {
    require(count > 0 && channels % count == 0, Code::shape, node.name, "{} has numbers {} for {} channels", node.op,
            to_text(c.shape(values)), channels);
    values = c.add("Expand", {c.reshape(values, {count, 1})}, {{"shape", Shape{count, channels / count}}});
  }
  Shape shape(x.size() - 1, 1);
  shape[0] = channels;
  return c.reshape(values, shape);
}

// Returns `id` and the nearest of the values that it is computed from. Stops after about kMost values, so that a model
// with many normalizations does not take quadratic time.
std::set<ValueId> nearest_sources(const Canonical &c, ValueId id) {
  constexpr std::size_t kMost = 64;
  std::set<ValueId> seen = {id};
  std::vector<ValueId> queue = {id};
  for (std::size_t at = 0; at < queue.size() && seen.size() < kMost; ++at) {
    const Node *node = c.rewriter().producer(queue[at]);
    if (node == nullptr) continue;
    for (const ValueId in : node->inputs)
      if (in != ValueId::none && c.constant_of(in) == nullptr && seen.insert(in).second) queue.push_back(in);
  }
  return seen;
}

// Marks an initializer as the scale or shift of a normalization (Value::norm), if `id` is computed from it alone.
void mark_norm(Canonical &c, ValueId id) {
  std::set<ValueId> sources = nearest_sources(c, id);
  std::erase_if(sources, [&](ValueId source) { return c.rewriter().producer(source) != nullptr; });
  if (sources.size() != 1) return;
  graph::Value &source = c.rewriter().graph().value(*sources.begin());
  source.norm = source.origin == graph::Origin::initializer || source.origin == graph::Origin::parameter;
}

// Applies the scale and the shift of a normalization to `normal`, and replaces the node's first output by the result.
void become_scaled(Canonical &c, const Node &node, ValueId normal) {
  const Shape x = c.shape(node.inputs.at(0));
  for (std::size_t i : {1, 2}) mark_norm(c, node.inputs.at(i));
  const ValueId scaled = c.add("Mul", {normal, along_channels(c, node, node.inputs[1], x)});
  c.become(with_output(node, 0), "Add", {scaled, along_channels(c, node, node.inputs[2], x)});
}

// Normalizes each of `groups` groups of channels to zero mean and unit variance, then applies scale and bias.
void become_group_normalization(Canonical &c, const Node &node, std::int64_t groups) {
  const ValueId x = node.inputs.at(0);
  const Type type = c.type(x);
  const Shape &shape = type.shape;
  require_channels(node, shape);
  require(groups > 0 && shape[1] % groups == 0, Code::shape, node.name, "{} groups of channels of {}", groups,
          to_text(shape));
  const std::int64_t width = element_count(shape) / std::max<std::int64_t>(1, shape[0] * groups);
  const ValueId one = c.rewriter().constant(graph::Array::filled({type.dtype, {width}}, 1));
  const Attributes attributes = {{"axis", std::int64_t{2}}, {"epsilon", node.attributes.real("epsilon", 1e-5)}};
  const ValueId rows = c.reshape(x, {shape[0], groups, width});
  become_scaled(c, node, c.reshape(c.add_all("LayerNormalization", {rows, one}, attributes, 3)[0], shape));
}

bool group_normalization(Canonical &c, Node &node) {
  become_group_normalization(c, node, node.attributes.integer("num_groups", 1));
  return true;
}

bool instance_normalization(Canonical &c, Node &node) {
  const Shape x = c.shape(node.inputs.at(0));
  require_channels(node, x);
  become_group_normalization(c, node, x[1]);
  return true;
}

// True if the node is in training mode. Since opset 14 an attribute sets this mode. A node of opset 13 is in training
// mode if it has outputs for statistics.
bool takes_statistics_of_batch(const Node &node) {
  return node.attributes.integer("training_mode", 0) != 0 ||
         std::any_of(node.outputs.begin() + 1, node.outputs.end(), [](ValueId out) { return out != ValueId::none; });
}

// Emits the new running mean or variance as output number `output` of a node in training mode. Emits it only if the
// graph reads this output, because the step itself updates the running statistics that the model holds.
void fold_statistic(Canonical &c, const Node &node, std::size_t output, ValueId statistic) {
  if (!c.rewriter().is_read(node, output)) return;
  const double momentum = node.attributes.real("momentum", 0.9);
  c.become(with_output(node, output), "FoldStatistics", {node.inputs[output + 2], statistic}, {{"momentum", momentum}});
}

// Normalizes by the batch's own mean and variance. Throws if the running statistics are constants of the graph, which a
// step cannot change.
bool normalize_by_batch(Canonical &c, Node &node) {
  const Shape x = c.shape(node.inputs[0]);
  require_channels(node, x);
  const bool unbiased = node.attributes.integer("unbiased", 0) != 0;
  require(!unbiased || element_count(x) > x[1], Code::shape, node.name,
          "one number per channel of {} has no variance; train with a larger batch, or with batch_norm=frozen",
          to_text(x));
  for (std::size_t i : {3, 4})
    require(c.constant_of(node.inputs[i]) == nullptr, Code::unsupported, node.name,
            "its running statistics are constants of the graph, which a step cannot change; export them as "
            "initializers, or train with batch_norm=frozen");
  Node core = with_output(node, 0);
  for (std::size_t i : {3, 4}) {  // in opset 13, the batch's own statistics are outputs too
    const bool is_output = i < node.outputs.size() && node.outputs[i] != ValueId::none;
    core.outputs.push_back(is_output ? node.outputs[i] : c.rewriter().new_value());
  }
  core.outputs.push_back(c.rewriter().new_value());
  Attributes attributes = {{"epsilon", node.attributes.real("epsilon", 1e-5)},
                           {"momentum", node.attributes.real("momentum", 0.9)}};
  if (unbiased) attributes.set("unbiased", std::int64_t{1});
  c.become(core, "BatchNorm", node.inputs, attributes);
  fold_statistic(c, node, 1, core.outputs[1]);
  fold_statistic(c, node, 2, core.outputs[3]);
  return true;
}

// True if the model holds no running statistics for the node. Exporters then compute the node's inputs 3 and 4 from its
// x.
bool holds_no_statistics(const Canonical &c, const Node &node) {
  for (std::size_t i = 1; i < node.outputs.size(); ++i)
    if (c.rewriter().is_read(node, i)) return false;
  for (std::size_t i : {3, 4})
    if (c.rewriter().producer(node.inputs[i]) == nullptr) return false;
  const std::set<ValueId> of_x = nearest_sources(c, node.inputs[0]);
  return std::ranges::all_of(std::array{node.inputs[3], node.inputs[4]}, [&](ValueId statistic) {
    return std::ranges::any_of(nearest_sources(c, statistic), [&](ValueId id) { return of_x.contains(id); });
  });
}

// Returns the mean and variance of each channel of x.
std::pair<ValueId, ValueId> statistics_of_batch(Canonical &c, const Node &node, ValueId x) {
  const Shape shape = c.shape(x);
  require_channels(node, shape);
  Integers axes = {0};
  for (std::size_t axis = 2; axis < shape.size(); ++axis) axes.push_back(static_cast<std::int64_t>(axis));
  const Attributes along = {{"axes", axes}, {"keepdims", std::int64_t{0}}};
  const ValueId mean = c.add("ReduceMean", {x}, along);
  const ValueId centred = c.add("Sub", {x, along_channels(c, node, mean, shape)});
  return {mean, c.add("ReduceMean", {c.add("Mul", {centred, centred})}, along)};
}

// Normalizes by the mean and variance of the batch in training mode, else by the running mean and variance. In training
// mode, if the model holds running statistics, the node becomes the operator BatchNorm, which also updates these
// statistics. In all other cases the node becomes several operators.
bool batch_normalization(Canonical &c, Node &node) {
  if (!has(node, 4)) return false;
  const ValueId x = node.inputs[0];
  ValueId mean = node.inputs[3], variance = node.inputs[4];
  if (takes_statistics_of_batch(node)) {
    if (!holds_no_statistics(c, node)) return normalize_by_batch(c, node);
    std::tie(mean, variance) = statistics_of_batch(c, node, x);
  }
  const Shape shape = c.shape(x);
  const DType dtype = c.type(x).dtype;
  variance = c.add("Add", {variance, c.scalar(dtype, node.attributes.real("epsilon", 1e-5))});
  const ValueId inverse = c.add("Reciprocal", {c.add("Sqrt", {variance})});
  const ValueId centred = c.add("Sub", {x, along_channels(c, node, mean, shape)});
  become_scaled(c, node, c.add("Mul", {centred, along_channels(c, node, inverse, shape)}));
  return true;
}

// Subtracts the mean and divides by the standard deviation. If the deviation is 0 (over a single number, for example),
// the result is 0. The gradient of the deviation is then 0 too, as with PyTorch's std.
bool mean_variance_normalization(Canonical &c, Node &node) {
  const ValueId x = node.inputs.at(0);
  const Integers axes = node.attributes.has("axes") ? node.attributes.integers("axes") : Integers{0, 2, 3};
  const Attributes along = {{"axes", axes}, {"keepdims", std::int64_t{1}}};
  const ValueId centred = c.add("Sub", {x, c.add("ReduceMean", {x}, along)});
  const ValueId variance = c.add("ReduceMean", {c.add("Mul", {centred, centred})}, along);
  const ValueId deviation = c.add("Sqrt", {c.stopped_at_zero(variance)});
  constexpr double kLeast = 1e-9;  // ONNX's value
  c.become(node, "Div", {centred, c.add("Add", {deviation, c.scalar(c.type(x).dtype, kLeast)})});
  return true;
}

bool lp_normalization(Canonical &c, Node &node) {
  const ValueId x = node.inputs.at(0);
  const Attributes along = {{"axes", Integers{node.attributes.integer("axis", -1)}}, {"keepdims", std::int64_t{1}}};
  const char *length = node.attributes.integer("p", 2) == 1 ? "ReduceL1" : "ReduceL2";
  const ValueId found = c.add(length, {x}, along);
  const ValueId zero = c.scalar(c.type(x).dtype, 0), one = c.scalar(c.type(x).dtype, 1);
  c.become(node, "Div", {x, c.add("Where", {c.add("Equal", {found, zero}), one, found})});  // a zero vector stays 0
  return true;
}

// Computes x / (bias + alpha / size * sum)^beta. The sum goes over the squares of `size` neighbouring channels. It is
// computed as a product with a band matrix.
bool local_response_normalization(Canonical &c, Node &node) {
  const ValueId x = node.inputs.at(0);
  const Type type = c.type(x);
  require_channels(node, type.shape);
  constexpr std::int64_t kMostChannels = 1 << 13;
  const std::int64_t size = node.attributes.integer("size", 0), channels = type.shape[1];
  require(size > 0 && size < 1 << 30, Code::graph, node.name, "size is {}", size);
  require(channels <= kMostChannels, Code::limit, node.name, "{} channels are too many", channels);
  const double share = node.attributes.real("alpha", 1e-4) / static_cast<double>(size);
  const Type square = {type.dtype, {channels, channels}};
  const ValueId weights = c.constant(fmt::format("LRN {} {}", size, share), square, [&] {
    std::vector<double> band(static_cast<std::size_t>(channels * channels), 0);
    for (std::int64_t at = 0; at < channels; ++at)
      for (std::int64_t i = std::max<std::int64_t>(0, at - (size - 1) / 2); i <= std::min(channels - 1, at + size / 2);
           ++i)
        band[static_cast<std::size_t>(at * channels + i)] = share;
    return graph::Array::from_doubles(square, band);
  });
  const Shape rows = {type.shape[0], channels, element_count({type.shape.begin() + 2, type.shape.end()})};
  const ValueId sum = c.reshape(c.add("MatMul", {weights, c.reshape(c.add("Mul", {x, x}), rows)}), type.shape);
  const ValueId base = c.add("Add", {sum, c.scalar(type.dtype, node.attributes.real("bias", 1))});
  const ValueId divisor = c.add("Pow", {base, c.scalar(type.dtype, node.attributes.real("beta", 0.75))});
  c.become(node, "Div", {x, divisor});
  return true;
}

// Sets the mode of each BatchNormalization of one graph. Returns true if there was one.
bool set_mode(Graph &graph, bool trains) {
  const auto readers = graph.consumers();
  bool found = false;
  for (std::size_t n = 0; n < graph.node_count(); ++n) {
    Node &node = graph.node(static_cast<graph::NodeId>(n));
    if (node.op != "BatchNormalization") continue;
    found = true;
    node.attributes.set("training_mode", std::int64_t{trains});
    node.attributes.set("unbiased", std::int64_t{trains});
    for (std::size_t i = 1; i < node.outputs.size() && !trains; ++i) {
      const ValueId out = node.outputs[i];
      const bool read = out != ValueId::none &&
                        (!readers[index(out)].empty() || std::ranges::find(graph.outputs, out) != graph.outputs.end());
      require(!read, Code::unsupported, node.name, "batch_norm=frozen leaves no value for its output {}, which is read",
              graph.value(out).name);
    }
    if (!trains) node.outputs.resize(1);
  }
  return found;
}

}  // namespace

graph::Bodies set_batch_norm(Graph &graph, const graph::Bodies *bodies, BatchNorm batch_norm) {
  graph::Bodies changed = bodies == nullptr ? graph::Bodies() : *bodies;
  if (batch_norm == BatchNorm::as_exported) return changed;
  const bool trains = batch_norm == BatchNorm::train;
  bool found = set_mode(graph, trains);
  for (graph::Body &body : changed) found |= set_mode(body.graph, trains);
  require(found, Code::arg, "batch_norm",
          "the model has no BatchNormalization; exporters fold it into convolutions unless they are told not to "
          "(optimize=False, do_constant_folding=False)");
  return changed;
}

Rules channel_rules() {
  return {{"GroupNormalization", group_normalization}, {"InstanceNormalization", instance_normalization},
          {"BatchNormalization", batch_normalization}, {"MeanVarianceNormalization", mean_variance_normalization},
          {"LpNormalization", lp_normalization},       {"LRN", local_response_normalization}};
}

}  // namespace protrain::passes
