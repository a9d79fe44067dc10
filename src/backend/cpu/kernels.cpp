// The table of CPU kernels: operator -> factory.
#include <algorithm>
#include <array>

#include "backend/cpu/kernel.h"

namespace protrain::backend {

namespace {
struct Row {
  std::string_view op;
  Factory make;
};

constexpr Row kRows[] = {
#if __has_include("backend/cpu/matmul.cpp")
    {"MatMul", make_matmul},
#endif
#if __has_include("backend/cpu/attention.cpp")
    {"FusedAttention", make_attention},
#endif
#if __has_include("backend/cpu/attention_grad.cpp")
    {"FusedAttentionGrad", make_attention_grad},
#endif
#if __has_include("backend/cpu/loss.cpp")
    {"CrossEntropy", make_cross_entropy},
    {"CrossEntropyGrad", make_cross_entropy_grad},
#endif
#if __has_include("backend/cpu/linear_loss.cpp")
    {"LinearCrossEntropy", make_linear_cross_entropy},
    {"LinearCrossEntropyGrad", make_linear_cross_entropy},
#endif
#if __has_include("backend/cpu/norm.cpp")
    {"SquaredNorm", make_squared_norm},
    {"GlobalNorm", make_global_norm},
#endif
#if __has_include("backend/cpu/cast.cpp")
    {"Cast", make_cast},
#endif
#if __has_include("backend/cpu/movement.cpp")
    {"Transpose", make_transpose},
    {"Slice", make_slice},
    {"SliceGrad", make_slice_grad},
    {"Concat", make_concat},
    {"Split", make_split},
    {"Expand", make_expand},
    {"Pad", make_pad},
    {"Trilu", make_trilu},
#endif
#if __has_include("backend/cpu/gather.cpp")
    {"Gather", make_gather},
    {"GatherGrad", make_gather_grad},
    {"GatherElements", make_gather_elements},
    {"GatherElementsGrad", make_gather_elements_grad},
#endif
#if __has_include("backend/cpu/reduce.cpp")
    {"ReduceSum", make_reduce},
    {"ReduceMean", make_reduce},
    {"ReduceMax", make_reduce},
    {"ReduceMin", make_reduce},
#endif
#if __has_include("backend/cpu/softmax.cpp")
    {"Softmax", make_softmax},
    {"LogSoftmax", make_softmax},
    {"SoftmaxGrad", make_softmax_grad},
    {"LogSoftmaxGrad", make_softmax_grad},
#endif
#if __has_include("backend/cpu/normalization.cpp")
    {"LayerNormalization", make_normalization},
    {"RMSNormalization", make_normalization},
    {"LayerNormalizationGrad", make_normalization_grad},
    {"RMSNormalizationGrad", make_normalization_grad},
#endif
#if __has_include("backend/cpu/rotary.cpp")
    {"Rotary", make_rotary},
#endif
#if __has_include("backend/cpu/binary.cpp")
    {"Add", make_binary},
    {"Sub", make_binary},
    {"Mul", make_binary},
    {"Div", make_binary},
    {"Pow", make_binary},
    {"Max", make_binary},
    {"Min", make_binary},
    {"Equal", make_binary},
    {"Less", make_binary},
    {"LessOrEqual", make_binary},
    {"Greater", make_binary},
    {"GreaterOrEqual", make_binary},
    {"And", make_binary},
    {"Or", make_binary},
    {"Xor", make_binary},
    {"Where", make_where},
#endif
#if __has_include("backend/cpu/unary.cpp")
    {"Neg", make_unary},
    {"Abs", make_unary},
    {"Exp", make_unary},
    {"Log", make_unary},
    {"Sqrt", make_unary},
    {"Reciprocal", make_unary},
    {"Erf", make_unary},
    {"Tanh", make_unary},
    {"Sigmoid", make_unary},
    {"Relu", make_unary},
    {"LeakyRelu", make_unary},
    {"Elu", make_unary},
    {"Celu", make_unary},
    {"Selu", make_unary},
    {"Softplus", make_unary},
    {"Softsign", make_unary},
    {"HardSigmoid", make_unary},
    {"HardSwish", make_unary},
    {"Mish", make_unary},
    {"Sin", make_unary},
    {"Cos", make_unary},
    {"Gelu", make_unary},
    {"Silu", make_unary},
    {"Clip", make_unary},
    {"ThresholdedRelu", make_unary},
    {"Floor", make_unary},
    {"Ceil", make_unary},
    {"Round", make_unary},
    {"Sign", make_unary},
    {"Not", make_unary},
    {"IsNaN", make_unary},
    {"IsInf", make_unary},
    {"AbsGrad", make_unary_grad},
    {"ExpGrad", make_unary_grad},
    {"LogGrad", make_unary_grad},
    {"SqrtGrad", make_unary_grad},
    {"ReciprocalGrad", make_unary_grad},
    {"ErfGrad", make_unary_grad},
    {"TanhGrad", make_unary_grad},
    {"SigmoidGrad", make_unary_grad},
    {"ReluGrad", make_unary_grad},
    {"LeakyReluGrad", make_unary_grad},
    {"EluGrad", make_unary_grad},
    {"CeluGrad", make_unary_grad},
    {"SeluGrad", make_unary_grad},
    {"SoftplusGrad", make_unary_grad},
    {"SoftsignGrad", make_unary_grad},
    {"HardSigmoidGrad", make_unary_grad},
    {"HardSwishGrad", make_unary_grad},
    {"MishGrad", make_unary_grad},
    {"SinGrad", make_unary_grad},
    {"CosGrad", make_unary_grad},
    {"GeluGrad", make_unary_grad},
    {"SiluGrad", make_unary_grad},
    {"ClipGrad", make_unary_grad},
    {"ThresholdedReluGrad", make_unary_grad},
    {"NegGrad", make_unary_grad},
#endif
};
}  // namespace

Factory find_kernel(std::string_view op) {
  const Row *row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row &r) { return r.op == op; });
  return row == std::end(kRows) ? nullptr : row->make;
}

}  // namespace protrain::backend
