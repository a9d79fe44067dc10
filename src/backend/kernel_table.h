// The operators that have kernels, with the factories that make the kernels: FAMILY(factory, operators...). A backend
// declares these factories in its kernel.h, and looks them up in its kernels.cpp or kernels.cu. A file that defines
// factories has the same name in every backend.
#pragma once

// PROTRAIN_KERNELS(PROTRAIN_RETURN_FACTORY) in the body of a function returns the factory of the operator with the name
// `op`.
#define PROTRAIN_RETURN_FACTORY(MAKE, ...) \
  if (one_of(op, {__VA_ARGS__})) return MAKE;

#define PROTRAIN_KERNELS(FAMILY)                                                                                       \
  FAMILY(make_matmul, "MatMul")                                                                                        \
  FAMILY(make_attention, "FusedAttention")                                                                             \
  FAMILY(make_attention_grad, "FusedAttentionGrad")                                                                    \
  FAMILY(make_cross_entropy, "CrossEntropy")                                                                           \
  FAMILY(make_cross_entropy_grad, "CrossEntropyGrad")                                                                  \
  FAMILY(make_linear_cross_entropy, "LinearCrossEntropy", "LinearCrossEntropyGrad")                                    \
  FAMILY(make_ctc_loss, "CtcLoss", "CtcLossGrad")                                                                      \
  FAMILY(make_dropout, "Dropout")                                                                                      \
  FAMILY(make_uniform, "Uniform")                                                                                      \
  FAMILY(make_loss_scale, "LossScale")                                                                                 \
  FAMILY(make_squared_norm, "SquaredNorm")                                                                             \
  FAMILY(make_join_squares, "JoinSquares")                                                                             \
  FAMILY(make_global_norm, "GlobalNorm")                                                                               \
  FAMILY(make_scaled_norm, "ScaledNorm")                                                                               \
  FAMILY(make_gradient_scale, "GradientScale")                                                                         \
  FAMILY(make_accumulate, "Accumulate", "SumParts")                                                                    \
  FAMILY(make_count_targets, "CountTargets")                                                                           \
  FAMILY(make_counted_loss, "CountedLoss")                                                                             \
  FAMILY(make_cast, "Cast")                                                                                            \
  FAMILY(make_dequantize, "DequantizeLinear")                                                                          \
  FAMILY(make_fake_quantize, "FakeQuantize", "FakeQuantizeGrad")                                                       \
  FAMILY(make_transpose, "Transpose")                                                                                  \
  FAMILY(make_moves, "Slice", "SliceGrad", "Concat", "Split", "Expand", "Pad")                                         \
  FAMILY(make_trilu, "Trilu")                                                                                          \
  FAMILY(make_gather, "Gather")                                                                                        \
  FAMILY(make_gather_grad, "GatherGrad")                                                                               \
  FAMILY(make_gather_elements, "GatherElements")                                                                       \
  FAMILY(make_gather_elements_grad, "GatherElementsGrad")                                                              \
  FAMILY(make_reduce, "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")                                             \
  FAMILY(make_cumsum, "CumSum")                                                                                        \
  FAMILY(make_arg, "ArgMax", "ArgMin")                                                                                 \
  FAMILY(make_topk, "TopK")                                                                                            \
  FAMILY(make_softmax, "Softmax", "LogSoftmax")                                                                        \
  FAMILY(make_softmax_grad, "SoftmaxGrad", "LogSoftmaxGrad")                                                           \
  FAMILY(make_normalization, "LayerNormalization", "RMSNormalization")                                                 \
  FAMILY(make_normalization_grad, "LayerNormalizationGrad", "RMSNormalizationGrad")                                    \
  FAMILY(make_batch_norm, "BatchNorm")                                                                                 \
  FAMILY(make_batch_norm_grad, "BatchNormGrad")                                                                        \
  FAMILY(make_fold_statistics, "FoldStatistics", "AccumulateStatistics")                                               \
  FAMILY(make_recurrent, "LstmSteps", "GruSteps", "RnnSteps")                                                          \
  FAMILY(make_recurrent_grad, "LstmStepsGrad", "GruStepsGrad", "RnnStepsGrad")                                         \
  FAMILY(make_conv, "Conv", "ConvTranspose", "ConvWeightGrad")                                                         \
  FAMILY(make_pool, "MaxPool", "AveragePool")                                                                          \
  FAMILY(make_pool_grad, "MaxPoolGrad", "AveragePoolGrad")                                                             \
  FAMILY(make_rotary, "Rotary")                                                                                        \
  FAMILY(make_binary, "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Equal", "Less", "LessOrEqual", "Greater",      \
         "GreaterOrEqual", "And", "Or", "Xor")                                                                         \
  FAMILY(make_where, "Where")                                                                                          \
  FAMILY(make_gated, "Gated", "GatedGrad")                                                                             \
  FAMILY(make_unary, "Neg", "Abs", "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Tanh", "Sigmoid", "Relu", "LeakyRelu",  \
         "Elu", "Celu", "Selu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Mish", "Sin", "Cos", "Tan",       \
         "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Gelu", "Silu", "Clip", "ThresholdedRelu", \
         "Floor", "Ceil", "Round", "Sign", "Not", "IsNaN", "IsInf")                                                    \
  FAMILY(make_unary_grad, "AbsGrad", "ExpGrad", "LogGrad", "SqrtGrad", "ReciprocalGrad", "ErfGrad", "TanhGrad",        \
         "SigmoidGrad", "ReluGrad", "LeakyReluGrad", "EluGrad", "CeluGrad", "SeluGrad", "SoftplusGrad",                \
         "SoftsignGrad", "HardSigmoidGrad", "HardSwishGrad", "MishGrad", "SinGrad", "CosGrad", "TanGrad", "AsinGrad",  \
         "AcosGrad", "AtanGrad", "SinhGrad", "CoshGrad", "AsinhGrad", "AcoshGrad", "AtanhGrad", "GeluGrad",            \
         "SiluGrad", "ClipGrad", "ThresholdedReluGrad", "NegGrad")
