#include "ops/stored.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/text.h"

namespace protrain::ops {

namespace {

constexpr StoredInput kInputs[] = {{"MatMul", 1, 3}, {"LinearCrossEntropy", 1, 6}, {"LinearCrossEntropyGrad", 1, 6}};

const StoredInput &stored_input(const Node &node) {
  const StoredInput *found = find_stored_input(node.op);
  require(found != nullptr, Code::graph, node.name, "{} takes no stored operand", node.op);
  return *found;
}

}  // namespace

const StoredInput *find_stored_input(std::string_view op) {
  const auto *const found = std::ranges::find(kInputs, op, &StoredInput::op);
  return found == std::end(kInputs) ? nullptr : found;
}

bool only_moves(std::string_view op) {
  return one_of(op, {"Gather", "GatherElements", "Slice", "Transpose", "Expand", "Reshape"});
}

// False for a product that transposes its first operand, even if it reads the result of `widening`. The kernel of such
// a product works through the first operand's columns, and takes only floats.
bool takes_stored(const graph::Graph &graph, const Node &node, const Node &widening) {
  const StoredInput *input = find_stored_input(node.op);
  if (input == nullptr || has_stored(node) || node.attributes.integer("trans_a", 0) != 0) return false;
  const std::size_t at = input->matrix;
  const graph::ValueId floats = widening.outputs.at(0);
  return node.inputs.at(at) == floats && graph.value(floats).type.shape.size() == 2 && node.inputs[0] != floats &&
         graph.value(floats).type.dtype == graph.value(node.inputs[0]).type.dtype;
}

void take_stored(Node &node, const Node &widening) {
  const StoredInput &stored = stored_input(node);
  node.inputs[stored.matrix] = widening.inputs.at(0);
  if (widening.inputs.size() > 1) {
    node.inputs.resize(stored.more, graph::ValueId::none);
    node.inputs.insert(node.inputs.end(), widening.inputs.begin() + 1, widening.inputs.end());
  }
  for (const auto &[key, value] : widening.attributes.items())
    if (key != "to" && key != "output_dtype") node.attributes.set(key, value);
  node.attributes.set(kStored, widening.op);
}

Widening::Widening(const NodeTypes &stored) {
  const StoredInput &at = stored_input(stored.node);
  node.op = stored.node.attributes.text(kStored, "");
  node.name = stored.node.name;
  node.attributes = stored.node.attributes;
  node.attributes.erase(kStored);
  const std::string to(name_of(stored.input(0).dtype));
  for (const char *key : {"to", "output_dtype"}) node.attributes.set(key, to);
  inputs = {&stored.input(at.matrix)};
  for (std::size_t i = at.more; i < stored.inputs.size(); ++i) inputs.push_back(stored.inputs[i]);
}

}  // namespace protrain::ops
