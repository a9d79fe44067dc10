// The numbers of inputs and outputs are taken from ONNX's own list of operators, opsets 13 to 24, and from ONNX
// Runtime's. If an operator takes other numbers of inputs in older opsets, these numbers are in older.cpp.
#include "onnx_import/arity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "onnx_import/older.h"
#include "onnx_import/versions.h"

namespace protrain::onnx_import {

namespace {

constexpr int kAny = std::numeric_limits<int>::max();

// The numbers of inputs and outputs that some operators take: from `least` to `most` inputs, and at most `outputs`
// outputs. `operators` has a space before and after each name. The first `least` inputs of a node must be present. If
// `most` is kAny and `least` is not 0, all inputs must be present. Empty names at the end of a node's inputs do not
// count as inputs.
struct Arity {
  int least, most, outputs;
  std::string_view operators;
};

constexpr auto kArities = std::to_array<Arity>({
    {0, 0, 1, " Constant RandomNormal RandomUniform SequenceEmpty "},
    {0, 1, 1, " Optional OptionalHasElement "},
    {0, kAny, kAny, " Loop "},
    {1, kAny, kAny, " Scan SequenceMap "},
    {1, kAny, 1, " Concat Einsum Max Mean Min SequenceConstruct Sum "},
    {1, 1, kAny, " If "},
    {1, 1, 1,
     " Abs Acos Acosh ArgMax ArgMin Asin Asinh Atan Atanh AveragePool Bernoulli BitwiseNot BlackmanWindow "
     "Cast Ceil Celu ConcatFromSequence ConstantOfShape Cos Cosh DepthToSpace Det Elu Erf Exp EyeLike "
     "Flatten Floor Gelu GlobalAveragePool GlobalLpPool GlobalMaxPool HammingWindow HannWindow HardSigmoid "
     "HardSwish Hardmax Identity ImageDecoder IsInf IsNaN LRN LeakyRelu Log LogSoftmax LpNormalization "
     "LpPool MeanVarianceNormalization Mish Multinomial Neg NonZero Not OptionalGetElement "
     "RandomNormalLike RandomUniformLike Reciprocal RegexFullMatch Relu Round Selu SequenceLength Shape "
     "Shrink Sigmoid Sign Sin Sinh Size Softmax Softplus Softsign SpaceToDepth Sqrt StringNormalizer Swish "
     "Tan Tanh TfIdfVectorizer ThresholdedRelu Transpose "},
    {1, 1, 2, " MaxPool StringSplit "},
    {1, 1, 3, " DynamicQuantizeLinear "},
    {1, 1, 4, " Unique "},
    {1, 2, kAny, " Split "},
    {1, 2, 1,
     " ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
     "ReduceSumSquare SequenceErase SplitToSequence Squeeze Trilu "},
    {1, 3, 1, " Clip DFT "},
    {1, 3, 2, " Dropout "},
    {1, 4, 1, " Resize "},
    {2, 2, 1,
     " Add AffineGrid And BitShift BitwiseAnd BitwiseOr BitwiseXor CastLike CenterCropPad Compress CumSum "
     "Div Equal Expand Gather GatherElements GatherND Greater GreaterOrEqual GridSample Less LessOrEqual "
     "MatMul MaxRoiPool Mod Mul Or PRelu Pow RMSNormalization Reshape ReverseSequence SequenceAt "
     "StringConcat Sub Tile Unsqueeze Upsample Xor "},
    {2, 2, 2, " TopK "},
    {2, 3, 1,
     " Conv ConvTranspose DequantizeLinear Gemm MaxUnpool NegativeLogLikelihoodLoss QuantizeLinear "
     "SequenceInsert TensorScatter "},
    {2, 3, 2, " SoftmaxCrossEntropyLoss "},
    {2, 3, 3, " LayerNormalization "},
    {2, 4, 1, " ConvInteger MatMulInteger Pad STFT "},
    {2, 5, 1, " NonMaxSuppression "},
    {3, 3, 1,
     " Col2Im GroupNormalization InstanceNormalization OneHot Range RoiAlign Scatter ScatterElements "
     "ScatterND Where "},
    {3, 4, 1, " RotaryEmbedding "},
    {3, 5, 1, " DeformConv Slice "},
    {3, 6, 2, " GRU RNN "},
    {3, 7, 4, " Attention "},
    {3, 8, 3, " LSTM "},
    {5, 5, 1, " MelWeightMatrix "},
    {5, 5, 5, " BatchNormalization "},
    {8, 8, 1, " QLinearMatMul "},
    {8, 9, 1, " QLinearConv "},
    {1, 1, 1, " com.microsoft::Gelu com.microsoft::QuickGelu "},
    {1, 2, 1, " com.microsoft::FastGelu "},
    {1, 9, 3, " com.microsoft::EmbedLayerNormalization "},
    {1, 10, 4, " com.microsoft::MultiHeadAttention "},
    {1, 17, 4, " com.microsoft::GroupQueryAttention "},
    {2, 2, 1, " com.microsoft::BiasGelu com.microsoft::BiasSplitGelu com.microsoft::FusedMatMul "},
    {2, 2, 2, " SimplifiedLayerNormalization "},
    {2, 3, 1, " com.microsoft::FusedGemm "},
    {2, 4, 1, " com.microsoft::FusedConv "},
    {2, 7, 2, " com.microsoft::Attention "},
    {3, 3, 1, " com.microsoft::RelativePositionBias "},
    {3, 4, 1, " com.microsoft::GatherBlockQuantized "},
    {3, 6, 1, " com.microsoft::MatMulNBits "},
    {3, 4, 4, " com.microsoft::SkipSimplifiedLayerNormalization "},
    {3, 5, 4, " com.microsoft::SkipLayerNormalization "},
    {4, 4, 1, " com.microsoft::RotaryEmbedding "},
});

// Returns the number of names without the empty ones at the end. An empty name means that an input or output is absent.
template <typename Names>
int count(const Names &names) {
  int size = names.size();
  while (size > 0 && names[size - 1].empty()) --size;
  return size;
}

}  // namespace

void check_arity(const NodeProto &node, std::int64_t opset, const std::string &subject) {
  const bool ours = is_default_domain(node.domain());
  const std::string title = (ours ? "" : node.domain() + "::") + node.op_type();
  const std::string name = " " + title + " ";
  const auto has = [&](const Arity &row) { return row.operators.find(name) != std::string_view::npos; };
  const auto found = std::ranges::find_if(kArities, has);
  if (found == kArities.end()) return;
  Arity row = *found;
  if (const OlderForm *older = ours ? older_form(node.op_type(), opset) : nullptr; older != nullptr) {
    row.least = older->least;
    row.most = older->most;
  }
  const int inputs = count(node.input()), outputs = count(node.output());
  require(inputs >= row.least, Code::graph, subject, "{} takes {} inputs at least, not {}", title, row.least, inputs);
  require(inputs <= row.most, Code::graph, subject, "{} takes {} inputs at most, not {}", title, row.most, inputs);
  for (int i = 0; i < (row.most == kAny && row.least > 0 ? inputs : row.least); ++i)
    require(!node.input(i).empty(), Code::graph, subject, "input {} of {} is required but absent", i, title);
  require(outputs <= row.outputs, Code::graph, subject, "{} makes {} outputs at most, not {}", title, row.outputs,
          outputs);
}

}  // namespace protrain::onnx_import
