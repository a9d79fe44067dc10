// The table of all rules, and which operators may remain.
#include "passes/canonical.h"

#include <set>

namespace protrain::passes {

namespace {

const Rules &all_rules() {
  static const Rules rules = [] {
    Rules all = shape_rules();
    all.merge(arithmetic_rules());
    all.merge(layer_rules());
    all.merge(loss_rules());
    all.merge(window_rules());
    all.merge(channel_rules());
    all.merge(einsum_rules());
    all.merge(index_rules());
    all.merge(gather_rules());
    all.merge(resize_rules());
    all.merge(random_rules());
    return all;
  }();
  return rules;
}

// Known operators that nothing runs: they must fold away or be rewritten.
const std::set<std::string_view> kFileOnly = {"Attention",
                                              "AveragePool",
                                              "BatchNormalization",
                                              "CastLike",
                                              "ConstantOfShape",
                                              "Constant",
                                              "Conv",
                                              "ConvTranspose",
                                              "DepthToSpace",
                                              "Einsum",
                                              "EyeLike",
                                              "Flatten",
                                              "GatherND",
                                              "Gemm",
                                              "GlobalAveragePool",
                                              "GlobalMaxPool",
                                              "GroupNormalization",
                                              "Identity",
                                              "InstanceNormalization",
                                              "LpNormalization",
                                              "MaxPool",
                                              "Mean",
                                              "MeanVarianceNormalization",
                                              "Mod",
                                              "NegativeLogLikelihoodLoss",
                                              "NonZero",
                                              "OneHot",
                                              "PRelu",
                                              "Range",
                                              "ReduceL1",
                                              "ReduceL2",
                                              "ReduceLogSum",
                                              "ReduceLogSumExp",
                                              "ReduceProd",
                                              "ReduceSumSquare",
                                              "Resize",
                                              "RotaryEmbedding",
                                              "ScatterElements",
                                              "ScatterND",
                                              "SequenceAt",
                                              "Shape",
                                              "Shrink",
                                              "Size",
                                              "SoftmaxCrossEntropyLoss",
                                              "SpaceToDepth",
                                              "SplitToSequence",
                                              "Squeeze",
                                              "Sum",
                                              "Swish",
                                              "Tile",
                                              "Unsqueeze"};

}  // namespace

Rule rule_for(std::string_view op) {
  const auto found = all_rules().find(op);
  return found == all_rules().end() ? nullptr : found->second;
}

bool is_core(std::string_view op) { return ops::find(op) != nullptr && !kFileOnly.contains(op); }

}  // namespace protrain::passes
