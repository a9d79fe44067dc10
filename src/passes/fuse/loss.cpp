// Fuses a cross entropy and the MatMul that computes its logits into one LinearCrossEntropy, which never holds all
// logits at once. Does so only if nothing else reads the logits. Slices and Reshapes that lie between the MatMul and
// the loss are moved to the MatMul's input.
#include "passes/fuse/fuse.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

bool cuts_leading_axes(const Rewriter &r, const Node &node) {
  const std::size_t rank = r.shape(node.inputs.at(0)).size();
  const Integers axes = node.attributes.integers("axes"), starts = node.attributes.integers("starts");
  if (node.op != "Slice") return false;
  for (std::size_t i = 0; i < starts.size(); ++i)
    if (resolve_axis(axes.empty() ? static_cast<std::int64_t>(i) : axes[i], rank, node.name) + 1 == rank) return false;
  return true;
}

bool keeps_last_axis(const Rewriter &r, const Node &node) {
  const Shape before = r.shape(node.inputs.at(0)), after = r.shape(node.outputs.at(0));
  return node.op == "Reshape" && !before.empty() && !after.empty() && before.back() == after.back();
}

}  // namespace

bool fuse_linear_loss(Fusion &fusion, const Node &loss) {
  Rewriter &r = fusion.r;
  if (loss.outputs.size() > 1 && loss.outputs[1] != ValueId::none && r.uses(loss.outputs[1]) > 0) return false;
  std::vector<Node> cuts;  // the last one first
  ValueId at = loss.inputs.at(0);
  const Node *node = r.producer(at);
  while (node != nullptr && r.uses(at) == 1 && (cuts_leading_axes(r, *node) || keeps_last_axis(r, *node))) {
    cuts.push_back(*node);
    at = node->inputs[0];
    node = r.producer(at);
  }
  const Node *product = made_for_one(r, at, "MatMul");
  if (product == nullptr || product->attributes.integer("trans_a", 0) != 0 ||
      product->attributes.real("alpha", 1.0) != 1.0 || r.shape(product->inputs[1]).size() != 2)
    return false;
  const ValueId weights = product->inputs[1];
  const std::vector<ValueId> bias(product->inputs.begin() + 2, product->inputs.end());
  if (!bias.empty() && r.shape(bias[0]).size() != 1) return false;  // it adds a matrix, as an adapter's product does
  const std::int64_t trans_w = product->attributes.integer("trans_b", 0);

  ValueId x = product->inputs[0];
  const std::int64_t width = r.shape(x).back();
  for (auto cut = cuts.rbegin(); cut != cuts.rend(); ++cut) {
    Attributes attributes = cut->attributes;
    if (cut->op == "Reshape") {
      Shape shape = r.shape(cut->outputs[0]);
      shape.back() = width;
      attributes.set("shape", shape);
    }
    x = r.emit(cut->op, {x}, attributes);
  }
  Attributes attributes = loss.attributes;
  attributes.set("trans_w", trans_w);
  std::vector<ValueId> inputs = {x, weights, loss.inputs.at(1)};
  inputs.insert(inputs.end(), bias.begin(), bias.end());
  if (loss.inputs.size() > 2 && loss.inputs[2] != ValueId::none) {
    inputs.resize(4, ValueId::none);
    inputs.push_back(loss.inputs[2]);
  }
  Node single = loss;
  single.outputs.resize(1);
  r.become(single, "LinearCrossEntropy", inputs, attributes);
  return true;
}

}  // namespace protrain::passes
