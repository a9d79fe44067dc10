// Operators that ONNX does not define in its default domain. If an operator belongs to another domain, its name begins
// with that domain. ai.onnx.ml::Scaler is ONNX's. All others are ONNX Runtime's, which writes them into graphs that it
// has optimised. passes/canonical rewrites each operator of this file into other operators.
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

Family contrib_family() {
  Family family;
  const auto add = [&](std::string_view name, std::vector<std::size_t> optional = {}) {
    family.push_back({.name = name, .infer = infer_rewritten, .optional = std::move(optional), .file_only = true});
  };
  add("SimplifiedLayerNormalization");  // ONNX Runtime has it in the default domain
  add("ai.onnx.ml::Scaler");
  add("com.microsoft::Attention", {2, 3, 4, 5, 6});
  add("com.microsoft::BiasGelu");
  add("com.microsoft::BiasSplitGelu");
  add("com.microsoft::EmbedLayerNormalization", {1, 4, 7, 8});
  add("com.microsoft::FastGelu", {1});
  add("com.microsoft::FusedConv", {2, 3});
  add("com.microsoft::FusedGemm", {2});
  add("com.microsoft::FusedMatMul");
  add("com.microsoft::GatherBlockQuantized", {3});
  add("com.microsoft::Gelu");
  add("com.microsoft::GroupQueryAttention", {1, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  add("com.microsoft::MatMulNBits", {3, 4, 5});
  add("com.microsoft::MultiHeadAttention", {1, 2, 3, 4, 5, 6, 7, 8, 9});
  add("com.microsoft::QuickGelu");
  add("com.microsoft::RelativePositionBias");
  add("com.microsoft::RotaryEmbedding");
  add("com.microsoft::SkipLayerNormalization", {3, 4});
  add("com.microsoft::SkipSimplifiedLayerNormalization", {3});
  for (std::string_view name :
       {"com.microsoft.nchwc::ReorderInput", "com.microsoft.nchwc::ReorderOutput", "com.microsoft.nchwc::MaxPool",
        "com.microsoft.nchwc::AveragePool", "com.microsoft.nchwc::GlobalMaxPool",
        "com.microsoft.nchwc::GlobalAveragePool", "com.microsoft.nchwc::Upsample"})
    add(name);
  add("com.microsoft.nchwc::Conv", {2, 3});
  return family;
}

}  // namespace protrain::ops
