// Tables of operator versions, taken from ONNX's own list.
#include "onnx_import/versions.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace protrain::onnx_import {

namespace {

constexpr std::int64_t kOldestIr = 3, kNewestIr = 14;
constexpr int kMostImports = 1024;
constexpr std::int64_t kOldestOpset = 7, kKnownOpset = 24, kNewestOpset = 28;
// The oldest opset of a model with functions. Operators inside functions are not converted from older opsets.
constexpr std::int64_t kOldestWithFunctions = 13;

// A row of the tables below: an opset, and the operators that this opset introduced, changed or removed. `operators`
// has a space before and after each name.
struct Opset {
  std::int64_t version;
  std::string_view operators;
};

// Operators that the oldest opset does not have. LayerNormalization is left out, because ONNX Runtime writes it into
// files of every opset.
constexpr auto kIntroduced = std::to_array<Opset>(
    {{8, " Expand Scan "},
     {9,
      " Acosh Asinh Atanh Compress ConstantOfShape Cosh Erf EyeLike IsNaN MaxUnpool MeanVarianceNormalization NonZero "
      "OneHot Scatter Shrink Sign Sinh TfIdfVectorizer Where "},
     {10,
      " ConvInteger DequantizeLinear IsInf MatMulInteger Mod NonMaxSuppression QLinearConv QLinearMatMul "
      "QuantizeLinear "
      "Resize ReverseSequence RoiAlign StringNormalizer ThresholdedRelu "},
     {11,
      " BitShift ConcatFromSequence CumSum Det DynamicQuantizeLinear GatherElements GatherND Range Round "
      "ScatterElements ScatterND SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert "
      "SequenceLength SplitToSequence Unique "},
     {12, " Celu Einsum GreaterOrEqual LessOrEqual NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss "},
     {14, " HardSwish Trilu "},
     {15, " Bernoulli CastLike Optional OptionalGetElement OptionalHasElement "},
     {16, " GridSample "},
     {17, " BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT SequenceMap "},
     {18, " BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im GroupNormalization Mish "},
     {19, " DeformConv "},
     {20, " AffineGrid Gelu "},
     {23, " Attention RMSNormalization RotaryEmbedding "},
     {24, " Swish TensorScatter "}});

// Operators that ONNX has replaced by newer ones. Each row gives the first opset that lacks its operators.
constexpr auto kRemoved = std::to_array<Opset>({{10, " Upsample "}, {11, " Scatter "}});

// Operators that were introduced or changed after kKnownOpset.
constexpr auto kChanged = std::to_array<Opset>(
    {{25,
      " Attention Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad QuantizeLinear "
      "Reshape Scan Shape Size Squeeze Transpose Unsqueeze "},
     {26, " BitCast CumProd "},
     {27, " CausalConvWithState LinearAttention Range "},
     {28,
      " BitShift Celu Compress DepthToSpace Einsum Mod OneHot Optional OptionalGetElement OptionalHasElement "
      "ReduceLogSum ReduceLogSumExp ReverseSequence SpaceToDepth SwiGLU Unique "}});

// Returns the opset whose row has `op`, or 0.
std::int64_t opset_of(std::span<const Opset> table, const std::string &op) {
  const auto has = [&](const Opset &row) { return row.operators.find(" " + op + " ") != std::string_view::npos; };
  const auto found = std::find_if(table.begin(), table.end(), has);
  return found == table.end() ? 0 : found->version;
}

}  // namespace

std::int64_t check_versions(const ModelProto &model, const std::string &path) {
  require(model.has_ir_version() && model.ir_version() >= kOldestIr && model.ir_version() <= kNewestIr, Code::version,
          path, "ir_version {}; this library reads {} to {}",
          model.has_ir_version() ? std::to_string(model.ir_version()) : "is absent", kOldestIr, kNewestIr);
  std::map<std::string, std::int64_t> versions;
  for (const OpsetImport &import : model.opset_import()) {
    const std::string domain = is_default_domain(import.domain()) ? "" : import.domain();
    const auto [at, added] = versions.emplace(domain, import.version());
    require(added || at->second == import.version(), Code::format, path,
            "opset-import: domain \"{}\" with versions {} and {}", printable(domain), at->second, import.version());
  }
  const auto found = versions.find("");
  require(found != versions.end(), Code::version, path, "opset-import: none for the default domain");
  check_opset(found->second, path);
  return found->second;
}

std::optional<std::int64_t> imported(const OpsetImports &imports, const std::string &domain,
                                     const std::string &subject) {
  require(imports.size() <= kMostImports, Code::limit, subject, "opset-import: {} of them; at most {} are allowed",
          imports.size(), kMostImports);
  const auto plain = [](const std::string &name) { return is_default_domain(name) ? std::string_view() : name; };
  for (const OpsetImport &import : imports)
    if (plain(import.domain()) == plain(domain)) return import.version();
  return std::nullopt;
}

void check_opset(std::int64_t version, const std::string &subject) {
  require(version >= kOldestOpset && version <= kNewestOpset, Code::version, subject,
          "opset-import: version {}; this library reads {} to {} (onnx.version_converter converts)", version,
          kOldestOpset, kNewestOpset);
}

void check_opset_with_functions(std::int64_t version, const std::string &subject) {
  check_opset(version, subject);
  require(version >= kOldestWithFunctions, Code::version, subject,
          "opset-import: version {}; a model with functions has {} at least", version, kOldestWithFunctions);
}

void check_operator(const std::string &op, std::int64_t opset, const std::string &node) {
  const std::int64_t introduced = opset_of(kIntroduced, op);
  require(introduced <= opset, Code::unsupported, node, "ai.onnx::{} exists from opset {}, and the file says {}", op,
          introduced, opset);
  const std::int64_t removed = opset_of(kRemoved, op);
  require(removed == 0 || opset < removed, Code::unsupported, node,
          "ai.onnx::{} exists until opset {}, and the file says {}", op, removed - 1, opset);
  const std::int64_t changed = opset_of(kChanged, op);
  require(changed == 0 || changed > opset, Code::version, node,
          "ai.onnx::{} changed in opset {}, after {}, the last one known here; export with opset {}", op, changed,
          kKnownOpset, kKnownOpset);
}

}  // namespace protrain::onnx_import
