// The families that registry.cpp collects. Each is defined in the file of its name.
#pragma once

#include "ops/op.h"

namespace protrain::ops {

Family unary_family();          // one float in, one out: Neg, Exp, Tanh, Gelu, Clip, ... and their ...Grad
Family gated_family();          // Gated: an activation times another value; and its gradient
Family binary_family();         // broadcasting arithmetic, comparison and logic; Where
Family cast_family();           // Cast, CastLike
Family reshape_family();        // Reshape, Squeeze, Unsqueeze, Flatten, Identity, Expand, Tile
Family movement_family();       // Transpose, Slice, Concat, Split, Pad, Trilu, sequences of splits
Family generator_family();      // Shape, Size, Constant, ConstantOfShape, Range, CumSum, ...
Family gather_family();         // Gather, GatherElements, GatherND; the gradients of the first two; scatters
Family reduce_family();         // ReduceSum, ReduceMean, ...; ArgMax
Family matmul_family();         // MatMul, Gemm
Family softmax_family();        // Softmax, LogSoftmax and gradients; Hardmax
Family normalization_family();  // LayerNormalization, RMSNormalization and gradients
Family batch_norm_family();     // BatchNormalization; BatchNorm and gradient; FoldStatistics, AccumulateStatistics
Family attention_family();      // ONNX's Attention; FusedAttention and gradient
Family rotary_family();         // ONNX's RotaryEmbedding; Rotary
Family recurrent_family();      // ONNX's LSTM, GRU, RNN; LstmSteps, GruSteps, RnnSteps and gradients
Family loss_family();           // SoftmaxCrossEntropyLoss; CrossEntropy, LinearCrossEntropy and gradients
Family ctc_family();            // CtcLoss and gradient
Family dropout_family();        // Dropout
Family uniform_family();        // Uniform, and ONNX's random operators
Family accumulate_family();     // Accumulate, SumParts, CountTargets, CountedLoss: micro-batches joined into one step
Family conv_family();           // Conv, ConvTranspose, ConvWeightGrad
Family windows_family();        // Col2Im: result types alone
Family pool_family();           // MaxPool, AveragePool and gradients; pooling of whole axes
Family topk_family();           // TopK
Family einsum_family();         // Einsum
Family resize_family();         // Resize
Family quantize_family();       // QuantizeLinear, DequantizeLinear, FakeQuantize and its gradient
Family sample_family();         // AffineGrid, GridSample, RoiAlign: result types alone
Family signal_family();         // DFT, STFT: result types alone; windows
Family contrib_family();        // operators of the domains com.microsoft and ai.onnx.ml
Family control_flow_family();   // If, Loop, Scan
Family ranks_family();          // AllToAll, AllGather: between ranks
Family norm_family();           // LossScale, SquaredNorm, JoinSquares, GlobalNorm, ScaledNorm, GradientScale

}  // namespace protrain::ops
