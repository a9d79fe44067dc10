// Quantised numbers: the integer q stands for (q - zero_point) * scale. The functions here take and return integers as
// floats, which represent every integer of 16 bits exactly.
#pragma once

#include "arith/math.h"

namespace protrain::arith {

PROTRAIN_HD float dequantized(float q, float scale, float zero_point) { return (q - zero_point) * scale; }

// Returns the integer for x, ties to even. It may lie outside the range of integers that a tensor holds. NaN stays NaN.
PROTRAIN_HD float quantized(float x, float scale, float zero_point) { return __builtin_rintf(x / scale) + zero_point; }

// The lowest and the highest integer that a quantised tensor can hold, for example -128 and 127.
struct IntegerRange {
  float low, high;

  PROTRAIN_HD bool contains(float q) const { return q >= low && q <= high; }
  PROTRAIN_HD float clipped(float q) const { return q < low ? low : (q > high ? high : q); }
};

PROTRAIN_HD float fake_quantized(float x, float scale, float zero_point, IntegerRange range) {
  return dequantized(range.clipped(quantized(x, scale, zero_point)), scale, zero_point);
}

// Returns the straight-through gradient: dy if the integer for x is in range, else 0.
PROTRAIN_HD float fake_quantized_grad(float dy, float x, float scale, float zero_point, IntegerRange range) {
  return range.contains(quantized(x, scale, zero_point)) ? dy : 0.0f;
}

}  // namespace protrain::arith
