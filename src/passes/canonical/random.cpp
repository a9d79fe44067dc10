// The rule for Dropout, which draws random numbers, and the pass that makes a graph for evaluation.
#include <bit>

#include <fmt/format.h>

#include "base/text.h"
#include "passes/canonical/canonical.h"
#include "passes/passes.h"

namespace protrain::passes {

namespace {

// Returns the key of a node's random numbers: a hash of the first output's name in the file, which no fusion, order or
// plan changes. If the node has a seed, the hash includes it.
std::int64_t key_of(const Canonical &c, const Node &node) {
  ValueId first = ValueId::none;
  for (ValueId out : node.outputs)
    if (first == ValueId::none) first = out;
  std::uint64_t key = fnv1a(c.rewriter().value(first).name);
  if (node.attributes.has("seed")) key = fnv1a(fmt::format(" seed={}", node.attributes.integer("seed", 0)), key);
  return std::bit_cast<std::int64_t>(key);
}

// Returns the number of samples in a batch: axis 0 of the model's first input that has axes.
std::int64_t batch_of(const Graph &graph) {
  for (ValueId in : graph.inputs)
    if (const Shape &shape = graph.value(in).type.shape; !shape.empty()) return shape[0];
  return 0;
}

// Returns the number of samples along axis 0: B = `batch` for (B, ...) and (B * S, ...), 0 for other shapes.
std::int64_t samples_in(const Shape &shape, std::int64_t batch) {
  return !shape.empty() && batch > 0 && shape[0] > 0 && shape[0] % batch == 0 ? batch : 0;
}

// Opset 13 and newer: data, ratio, training_mode -> result, mask. Without training_mode the result is the data, and the
// mask is true everywhere.
bool dropout(Canonical &c, Node &node) {
  // Nothing is left to do, or the ratio or mode is computed from data.
  if (node.attributes.has("key") || has(node, 1) || has(node, 2)) return false;
  const std::vector<std::int64_t> training = node.attributes.integers("training_mode");
  const double ratio = node.attributes.real("ratio", 0.5);
  const Shape shape = c.shape(node.inputs.at(0));
  if (training.empty() || training[0] == 0 || ratio == 0) {
    if (node.outputs.at(0) != ValueId::none) c.pass(node, node.inputs[0]);
    if (c.rewriter().is_read(node, 1)) {
      Node mask = node;
      mask.outputs = {node.outputs[1]};
      c.pass(mask, c.rewriter().constant(graph::Array::filled({DType::boolean, shape}, 1)));
    }
    return true;
  }
  const Attributes attributes = {
      {"key", key_of(c, node)}, {"ratio", ratio}, {"samples", samples_in(shape, batch_of(c.rewriter().graph()))}};
  c.become(node, "Dropout", node.inputs, attributes);
  return true;
}

}  // namespace

Rules random_rules() { return {{"Dropout", dropout}}; }

void for_evaluation(Graph &graph) {
  Rewriter rewriter(graph);
  rewriter.walk([&](Node &node) {
    if (node.op == "Dropout") {
      const bool mask_read = rewriter.is_read(node, 1);
      if (!mask_read && node.outputs.at(0) != ValueId::none && rewriter.forward(node.outputs[0], node.inputs.at(0)))
        return;
      node.attributes.set("ratio", 0.0);  // keeps the values, and makes the mask true everywhere
    }
    if (node.op == "BatchNorm") node.attributes.set("running", std::int64_t{1});
    rewriter.keep(std::move(node));
  });
}

}  // namespace protrain::passes
