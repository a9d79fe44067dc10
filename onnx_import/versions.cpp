// The tables of what changed when. Taken from ONNX's own list of operator versions.
#include "onnx_import/versions.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace protrain::onnx_import {

namespace {

constexpr std::int64_t kOldestIr = 3, kNewestIr = 14;
constexpr std::int64_t kOldestOpset = 13, kKnownOpset = 24, kNewestOpset = 28;

struct Since {
  std::string_view op;
  std::int64_t opset;
};

// Operators that the oldest opset does not have.
constexpr auto kIntroduced = std::to_array<Since>({{"HardSwish", 14},
                                                   {"Trilu", 14},
                                                   {"CastLike", 15},
                                                   {"Bernoulli", 15},
                                                   {"Optional", 15},
                                                   {"LayerNormalization", 17},
                                                   {"SequenceMap", 17},
                                                   {"BitwiseAnd", 18},
                                                   {"BitwiseOr", 18},
                                                   {"BitwiseXor", 18},
                                                   {"BitwiseNot", 18},
                                                   {"GroupNormalization", 18},
                                                   {"Mish", 18},
                                                   {"CenterCropPad", 18},
                                                   {"Gelu", 20},
                                                   {"AffineGrid", 20},
                                                   {"Attention", 23},
                                                   {"RMSNormalization", 23},
                                                   {"RotaryEmbedding", 23},
                                                   {"Swish", 24},
                                                   {"TensorScatter", 24}});

// Operators with a definition later than kKnownOpset.
constexpr auto kChanged = std::to_array<Since>({{"Attention", 25},
                                                {"Cast", 25},
                                                {"CastLike", 25},
                                                {"Constant", 25},
                                                {"ConstantOfShape", 25},
                                                {"DequantizeLinear", 25},
                                                {"Flatten", 25},
                                                {"Identity", 25},
                                                {"If", 25},
                                                {"Loop", 25},
                                                {"Pad", 25},
                                                {"QuantizeLinear", 25},
                                                {"Reshape", 25},
                                                {"Scan", 25},
                                                {"Shape", 25},
                                                {"Size", 25},
                                                {"Squeeze", 25},
                                                {"Transpose", 25},
                                                {"Unsqueeze", 25},
                                                {"BitCast", 26},
                                                {"CumProd", 26},
                                                {"CausalConvWithState", 27},
                                                {"LinearAttention", 27},
                                                {"Range", 27},
                                                {"BitShift", 28},
                                                {"Celu", 28},
                                                {"Compress", 28},
                                                {"DepthToSpace", 28},
                                                {"Einsum", 28},
                                                {"Mod", 28},
                                                {"OneHot", 28},
                                                {"Optional", 28},
                                                {"OptionalGetElement", 28},
                                                {"OptionalHasElement", 28},
                                                {"ReduceLogSum", 28},
                                                {"ReduceLogSumExp", 28},
                                                {"ReverseSequence", 28},
                                                {"SpaceToDepth", 28},
                                                {"SwiGLU", 28},
                                                {"Unique", 28}});

template <std::size_t N>
const Since *find_operator(const std::array<Since, N> &table, std::string_view op) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Since &row) { return row.op == op; });
  return found == table.end() ? nullptr : &*found;
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
  require(found->second >= kOldestOpset && found->second <= kNewestOpset, Code::version, path,
          "opset-import: version {}; this library reads {} to {} (onnx.version_converter converts)", found->second,
          kOldestOpset, kNewestOpset);
  return found->second;
}

void check_operator(const std::string &op, std::int64_t opset, const std::string &node) {
  const Since *introduced = find_operator(kIntroduced, op);
  require(introduced == nullptr || introduced->opset <= opset, Code::unsupported, node,
          "ai.onnx::{} exists from opset {}, and the file says {}", op, introduced == nullptr ? 0 : introduced->opset,
          opset);
  const Since *changed = opset > kKnownOpset ? find_operator(kChanged, op) : nullptr;
  require(changed == nullptr || changed->opset > opset, Code::version, node,
          "ai.onnx::{} changed in opset {}, after {}, the last one known here; export with opset {}", op,
          changed == nullptr ? 0 : changed->opset, kKnownOpset, kKnownOpset);
}

}  // namespace protrain::onnx_import
