// The fusions. Each tests whether the visited node is the last one of its pattern. If so, it replaces the pattern by
// fused operators and returns true. Values inside a pattern must have no other reader. Only fuse_log_sigmoid() allows
// other readers, because its aim is an exact logarithm, not fewer values.
#pragma once

#include <map>
#include <tuple>
#include <utility>

#include "passes/pattern.h"

namespace protrain::passes {

// Describes which keys each query sees under a constant mask.
struct Mask {
  bool masks = false;      // hides some key
  bool empty_row = false;  // some query sees no key
  bool finite = true;      // hidden scores are finite, so a query that sees no key averages over all keys
  bool regular = false;    // `causal` and `window` express the whole mask, for all heads and samples
  bool causal = false;
  std::int64_t window = 0;  // 0: none
};

constexpr double kHidden = -1e30;  // scores this low hide a key; exporters write -1e30, float32's lowest or -inf
// Swaps the axes of heads and tokens. Never destroyed, because a session may be created while the process exits.
inline const std::vector<std::int64_t> &kSwapHeads = *new const std::vector<std::int64_t>{0, 2, 1, 3};

struct Fusion {
  Rewriter &r;
  // These maps hold findings about constants, so that each constant is read once. The key is the address of the
  // constant's bytes, its type, and the shape of what is stored of it. So constants that share their bytes, such as
  // those of several layers, share a finding.
  using ConstantKey = std::tuple<const std::byte *, DType, Shape, Shape>;
  static ConstantKey key_of(const graph::Array &array) {
    return {array.bytes(), array.dtype(), array.shape(), array.stored()};
  }
  std::map<ConstantKey, Mask> masks;
  std::map<ConstantKey, bool> equal_halves;
};

using Pattern = bool (*)(Fusion &, const Node &);

bool fuse_normalization(Fusion &, const Node &mul);       // x * scale / sqrt(mean(x^2) + epsilon)
bool fuse_normalization_bias(Fusion &, const Node &add);  // LayerNormalization + vector
bool fuse_gelu(Fusion &, const Node &product);
bool fuse_silu(Fusion &, const Node &mul);
bool fuse_gated(Fusion &, const Node &mul);
bool fuse_log_sigmoid(Fusion &, const Node &log);
bool fuse_rotary(Fusion &, const Node &add);
bool fuse_partial_rotary(Fusion &, const Node &concat);
bool fuse_attention(Fusion &, const Node &matmul);           // softmax(q k^T) v
bool fuse_mask(Fusion &, const Node &fused_attention);       // constant bias -> causal, window
bool fuse_data_mask(Fusion &, const Node &fused_attention);  // the constant part of a bias -> causal, window
bool fuse_scaled_operands(Fusion &, const Node &fused_attention);
bool fuse_grouped_heads(Fusion &, const Node &fused_attention);
bool fuse_bias(Fusion &, const Node &add);  // MatMul + vector
bool fuse_transposed_operand(Fusion &, const Node &matmul);
bool fuse_linear_loss(Fusion &, const Node &cross_entropy);

const Mask &mask_of(Fusion &fusion, ValueId constant);  // additive, or boolean: true is visible

}  // namespace protrain::passes
