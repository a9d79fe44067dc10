// Replaces patterns by fused operators, in one forward walk.
#include "passes/fuse/fuse.h"

#include <map>
#include <string_view>
#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

namespace {

using Patterns = std::map<std::string_view, std::vector<Pattern>>;

// The patterns by the operator of their last node, in the order in which they are tried. The table is never destroyed,
// because a thread may still make a session while the process exits.
const Patterns &kPatterns = *new const Patterns{
    {"Add", {fuse_normalization_bias, fuse_rotary, fuse_bias}},
    {"Concat", {fuse_partial_rotary}},
    {"CrossEntropy", {fuse_linear_loss}},
    {"Div", {fuse_gelu}},
    {"FusedAttention", {fuse_mask, fuse_data_mask, fuse_scaled_operands, fuse_grouped_heads}},
    {"Log", {fuse_log_sigmoid}},
    {"MatMul", {fuse_attention, fuse_transposed_operand}},
    {"Mul", {fuse_normalization, fuse_gelu, fuse_silu, fuse_gated}},
};

}  // namespace

bool fuse(Graph &graph) {
  Rewriter rewriter(graph);
  Fusion fusion{rewriter, {}, {}};
  rewriter.walk([&](Node &node) {
    const auto found = kPatterns.find(node.op);
    if (found != kPatterns.end())
      for (Pattern pattern : found->second)
        if (pattern(fusion, node)) return;
    rewriter.keep(std::move(node));
  });
  return rewriter.changed();
}

}  // namespace protrain::passes
