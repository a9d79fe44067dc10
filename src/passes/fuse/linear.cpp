// Fuses a MatMul with the rest of a linear layer: the addition of a bias, and transposes of its operands.
#include "passes/fuse/fuse.h"

namespace protrain::passes {

namespace {

// True for a vector that is added to each row of a product: its last axis has `columns` elements, and all others have
// one.
bool is_row(const Rewriter &r, ValueId id, std::int64_t columns) {
  const Shape shape = r.shape(id);
  const bool stored = r.producer(id) == nullptr;  // a residual of one row is no bias
  return !shape.empty() && shape.back() == columns && element_count(shape) == columns && (shape.size() == 1 || stored);
}

}  // namespace

bool fuse_bias(Fusion &fusion, const Node &add) {
  Rewriter &r = fusion.r;
  for (std::size_t i = 0; i < 2; ++i) {
    const Shape result = r.shape(add.outputs[0]);
    const Node *reshape = made_for_one(r, add.inputs[i], "Reshape");
    const Node *product = made_for_one(r, reshape != nullptr ? reshape->inputs[0] : add.inputs[i], "MatMul");
    if (product == nullptr || product->inputs.size() != 2 || result.empty()) continue;
    const Shape shape = r.shape(product->outputs[0]);
    if (r.shape(add.inputs[i]) != result || shape.back() != result.back()) continue;
    ValueId bias = add.inputs[1 - i];
    if (!is_row(r, bias, result.back())) continue;
    const bool through_reshape = reshape != nullptr;
    std::vector<ValueId> inputs = product->inputs;
    const Attributes attributes = product->attributes;
    if (r.shape(bias).size() != 1) bias = r.emit("Reshape", {bias}, {{"shape", Shape{result.back()}}});
    inputs.push_back(bias);
    if (through_reshape)
      r.become(add, "Reshape", {r.emit("MatMul", inputs, attributes)}, {{"shape", result}});
    else
      r.become(add, "MatMul", inputs, attributes);
    return true;
  }
  return false;
}

bool fuse_transposed_operand(Fusion &fusion, const Node &matmul) {
  Rewriter &r = fusion.r;
  std::vector<ValueId> inputs = matmul.inputs;
  Attributes attributes = matmul.attributes;
  bool changed = false;
  for (std::size_t i = 0; i < 2; ++i) {
    const Node *transpose = made_by(r, inputs[i], "Transpose");
    const std::size_t rank = r.shape(inputs[i]).size();
    if (transpose == nullptr || rank < 2 || transpose->attributes.integers("perm") != last_two_swapped(rank)) continue;
    const std::string key = i == 0 ? "trans_a" : "trans_b";
    if (attributes.integer(key, 0) != 0)
      attributes.erase(key);
    else
      attributes.set(key, std::int64_t{1});
    inputs[i] = transpose->inputs[0];
    changed = true;
  }
  if (changed) r.become(matmul, "MatMul", inputs, attributes);
  return changed;
}

}  // namespace protrain::passes
