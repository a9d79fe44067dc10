// Rounded weights: frozen matrices of floats that are quantised to fewer bits when they are loaded. From then on they
// are stored, moved and widened like weights that the file has in the quantised form (stored.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory.h"
#include "graph/graph.h"

namespace protrain::passes {

// A form that weights are rounded to: one of the values of the option `base_precision`.
struct Rounding {
  std::string_view name;
  int bits;
  // The number of elements in a block. A block lies along a product's inner axis, and its elements share a scale. The
  // last block may be shorter. 0: there are no scales, and the form is bfloat16.
  std::int64_t block = 0;
  // True: elements are codes of NF4. A block's scale is the largest magnitude in the block. The scale is itself rounded
  // to eight bits, as bitsandbytes does with `compress_statistics`. False: elements are integers from 0 on, and each
  // block has a scale and a zero point, as ONNX Runtime's MatMulNBitsQuantizer makes them by default.
  bool codes = false;
};
inline constexpr std::int64_t kScaleBlock = 256;       // with codes: the scales of this many blocks share one scale
const Rounding *find_rounding(std::string_view name);  // nullptr if weights keep the file's form

// A parameter that is rounded.
struct RoundedMatrix {
  const Rounding *rounding;
  std::string parameter;  // its name; it holds floats in the file, and integers or codes in the graph
  Shape shape;            // of the floats
  std::size_t axis = 0;   // the axis along which blocks lie
  // Names of the parameters that the matrix needs besides its elements. For integers, these are scales and zero points.
  // For codes, these are the codes of scales, the scales of these codes, and the offset of all scales.
  std::vector<std::string> others = {};
};

// Finds the parameters to round: frozen ones with two or more axes, whose elements are floats, but not float64.
// Rounding to bfloat16 takes all of these except those in float16. Rounding to integers or codes takes only matrices,
// and only those that every reader uses as the right operand of a product.
std::vector<RoundedMatrix> find_rounded(const graph::Graph &graph, const Rounding &rounding);

// Turns the parameters of `matrices` into integers or codes that a DequantizeLinear widens, or into bfloat16 that a
// Cast widens. Adds parameters for scales, zero points and offsets, and writes their names to RoundedMatrix::others.
// Skips a matrix if the graph lacks its parameter, or has the parameter in the rounded form (bfloat16) already.
void round_frozen(graph::Graph &graph, std::vector<RoundedMatrix> &matrices);

// The values of a rounded matrix.
struct RoundedValues {
  MemoryBlock room;                 // for the elements; not from the heap, which may keep freed memory
  std::vector<float> scales;        // one for each block; for codes: one for each kScaleBlock codes in `bytes`
  std::vector<std::uint8_t> bytes;  // the blocks' zero points; for codes: the blocks' scales, as codes
  std::vector<float> offset;        // for codes: the number that is added to each block's scale

  // Returns the integers or codes. If they have four bits, a byte holds two, the first one in its lower half.
  std::span<std::uint8_t> elements() const { return {reinterpret_cast<std::uint8_t *>(room.data()), room.size()}; }

  // Returns the values of the parameter itself if `i` is 0, else those of RoundedMatrix::others[i - 1].
  std::span<const std::byte> part(std::size_t i) const;
};

// Reads out.size() floats of the matrix, from element `first` on.
using ReadFloats = std::function<void(std::int64_t first, std::span<float> out)>;

// Rounds a matrix, whose floats are read a panel at a time. Throws Code::nonfinite if a float is not finite.
RoundedValues round(const RoundedMatrix &matrix, const ReadFloats &read);

// Replaces each float of a matrix by the value that its rounded form stands for.
void round_floats(const RoundedMatrix &matrix, std::span<float> floats);

}  // namespace protrain::passes
