// Nodes that tests of single kernels share.
#pragma once

#include <utility>
#include <vector>

#include "one_node.h"

namespace protrain::test {

// The sizes of a FusedAttention node.
struct AttentionSizes {
  std::int64_t batch, queries, keys, heads, kv_heads, depth, value_depth;
};

inline std::vector<Array> operands(const AttentionSizes &s, unsigned seed) {
  return {random_floats({s.batch, s.queries, s.heads, s.depth}, seed, -2, 2),
          random_floats({s.batch, s.keys, s.kv_heads, s.depth}, seed + 1, -2, 2),
          random_floats({s.batch, s.keys, s.kv_heads, s.value_depth}, seed + 2)};
}

inline OneNode forward(const AttentionSizes &sizes, const Attributes &attributes, unsigned seed) {
  return {"FusedAttention", attributes, operands(sizes, seed), {true, true}};
}

// Returns the gradient node of a FusedAttention `node`. The gradient node also reads outputs of forward, which the
// reference computes.
inline OneNode backward(const OneNode &node, unsigned seed) {
  const std::vector<Array> results = reference(node);
  OneNode grad{"FusedAttentionGrad", node.attributes, {random_floats(results[0].shape(), seed)}, {true, true, true}};
  grad.inputs.insert(grad.inputs.end(), node.inputs.begin(), node.inputs.begin() + 3);
  grad.inputs.insert(grad.inputs.end(), results.begin(), results.end());
  grad.inputs.insert(grad.inputs.end(), node.inputs.begin() + 3, node.inputs.end());
  return grad;
}

inline Attributes form(std::int64_t causal, std::int64_t window = 0, double softcap = 0, double scale = 0.3) {
  return {{"scale", scale}, {"causal", causal}, {"window", window}, {"softcap", softcap}};
}

// The sizes of a Rotary node.
struct RotaryCase {
  Shape x;               // (B, S, H, D)
  std::int64_t rotated;  // dims that are rotated
  bool per_batch;        // separate angles for each batch row
};

inline OneNode rotary(const RotaryCase &c, std::int64_t interleaved, std::int64_t inverse) {
  const Shape angles{c.per_batch ? c.x[0] : 1, c.x[1], c.rotated / 2};
  return {"Rotary",
          {{"interleaved", interleaved}, {"rotary_dim", c.rotated}, {"inverse", inverse}},
          {random_floats(c.x, 1), random_floats(angles, 2), random_floats(angles, 3)}};
}

}  // namespace protrain::test
