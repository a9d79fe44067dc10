// Rules for normalizations of the domain com.microsoft. ONNX Runtime joins a normalization with the sum of residuals
// and biases before it, or with the lookup of embeddings. These rules emit separate nodes again.
#include "base/error.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

constexpr double kContribEpsilon = 1e-12;

bool simplified_normalization(Canonical &c, Node &node) {
  c.become(node, "RMSNormalization", node.inputs,
           {{"axis", node.attributes.integer("axis", -1)}, {"epsilon", node.attributes.real("epsilon", 1e-5)}});
  return true;
}

// Replaces the node's output number `output` by `value`, if anything reads that output.
void give(Canonical &c, const Node &node, std::size_t output, ValueId value) {
  if (c.rewriter().is_read(node, output)) c.pass(with_output(node, output), value);
}

// Emits the sum and the normalization as separate nodes. Inputs: input, skip, scale[, shift][, bias]. A simplified
// normalization has no shift. Outputs: y, mean, 1 / deviation, input + bias + skip. Adds the bias before the skip, so
// that fuse_bias() can make it part of a MatMul that computes the input.
bool skip_normalization(Canonical &c, Node &node) {
  const bool simplified = node.op.find("Simplified") != std::string::npos;
  const std::size_t bias = simplified ? 3 : 4;
  const Shape shape = c.shape(node.inputs.at(0));
  ValueId sum = node.inputs[0];
  if (has(node, bias)) sum = c.add("Add", {sum, node.inputs[bias]});
  sum = c.add("Add", {sum, node.inputs.at(1)});
  require(c.shape(sum) == shape, Code::shape, node.name, "the input {} and the skip {} give a sum of {}",
          to_text(shape), to_text(c.shape(node.inputs[1])), to_text(c.shape(sum)));
  require(!simplified || !c.rewriter().is_read(node, 1), Code::unsupported, node.name,
          "the output mean is read, and this normalization has none");
  std::vector<ValueId> operands = {sum, node.inputs.at(2)};
  if (!simplified && has(node, 3)) operands.push_back(node.inputs[3]);
  const Attributes attributes = {{"axis", std::int64_t{-1}},
                                 {"epsilon", node.attributes.real("epsilon", kContribEpsilon)}};
  const std::vector<ValueId> parts = simplified ? c.add_all("RMSNormalization", operands, attributes, 2)
                                                : c.add_all("LayerNormalization", operands, attributes, 3);
  if (!simplified) give(c, node, 1, parts[1]);
  give(c, node, 2, parts.back());
  give(c, node, 3, sum);
  give(c, node, 0, parts[0]);
  return true;
}

// Returns the number of ones in each row of the mask, as int32. Returns zeros if there is no mask.
ValueId mask_lengths(Canonical &c, const Node &node, std::int64_t batch) {
  if (!has(node, 7)) return c.rewriter().constant(graph::Array::filled({DType::i32, {batch}}, 0));
  const ValueId mask = node.inputs[7];
  const ValueId one = c.scalar(c.type(mask).dtype, 1);
  const ValueId counted = c.add("Cast", {c.add("Equal", {mask, one})}, {{"to", std::string(name_of(DType::f32))}});
  const ValueId sum = c.add("ReduceSum", {counted}, {{"axes", Integers{1}}, {"keepdims", std::int64_t{0}}});
  return c.add("Cast", {sum}, {{"to", std::string(name_of(DType::i32))}});
}

// Emits the lookups, the sum of the embeddings and the normalization as separate nodes. Inputs: ids, segment ids, three
// tables (words, positions, segments), scale, shift[, mask][, position ids]. Outputs: y, number of ones in each row of
// the mask, sum of the embeddings.
bool embed_normalization(Canonical &c, Node &node) {
  const Shape ids = c.shape(node.inputs.at(0));
  const ValueId positions = node.inputs.at(3);
  require(ids.size() == 2 && c.shape(positions).size() == 2, Code::shape, node.name,
          "ids of {} and positions of {}; expected (batch, sequence) and (positions, features)", to_text(ids),
          to_text(c.shape(positions)));
  require(has(node, 1) == has(node, 4), Code::graph, node.name, "segment ids and a table of segments go together");
  const Attributes rows = {{"axis", std::int64_t{0}}};
  ValueId sum = c.add("Gather", {node.inputs.at(2), node.inputs[0]}, rows);
  const ValueId placed =
      has(node, 8)
          ? c.add("Gather", {positions, node.inputs[8]}, rows)
          : c.add("Slice", {positions}, {{"starts", Integers{0}}, {"ends", Integers{ids[1]}}, {"axes", Integers{0}}});
  sum = c.add("Add", {sum, placed});
  if (has(node, 1)) sum = c.add("Add", {sum, c.add("Gather", {node.inputs[4], node.inputs[1]}, rows)});
  const Attributes attributes = {{"axis", std::int64_t{-1}},
                                 {"epsilon", node.attributes.real("epsilon", kContribEpsilon)}};
  const ValueId y = c.add_all("LayerNormalization", {sum, node.inputs.at(5), node.inputs.at(6)}, attributes, 3)[0];
  if (c.rewriter().is_read(node, 1)) give(c, node, 1, mask_lengths(c, node, ids[0]));
  give(c, node, 2, sum);
  give(c, node, 0, y);
  return true;
}

}  // namespace

Rules contrib_norm_rules() {
  return {{"SimplifiedLayerNormalization", simplified_normalization},
          {"com.microsoft::SkipLayerNormalization", skip_normalization},
          {"com.microsoft::SkipSimplifiedLayerNormalization", skip_normalization},
          {"com.microsoft::EmbedLayerNormalization", embed_normalization}};
}

}  // namespace protrain::passes
