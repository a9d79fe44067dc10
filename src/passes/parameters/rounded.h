// Rounded weights: frozen matrices of floats that are rounded to fewer bits when they are loaded, and then rest, move
// and are widened like weights that the file has in that form (stored.h).
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

// A form to round to: one of the option `base_precision`.
struct Rounding {
  std::string_view name;
  int bits;
  // Elements along a product's inner axis that share a scale; the last block may be shorter. 0: there are no scales,
  // and the form is bfloat16.
  std::int64_t block = 0;
  // Codes of NF4 and the largest magnitude of each block, which is itself rounded to eight bits, as bitsandbytes does
  // with `compress_statistics`. False: integers from 0 on with a scale and a zero point for each block, as ONNX
  // Runtime's MatMulNBitsQuantizer makes them by default.
  bool codes = false;
};
inline constexpr std::int64_t kScaleBlock = 256;       // scales whose codes share a scale
const Rounding *find_rounding(std::string_view name);  // nullptr: the file's own form

// A parameter that is rounded.
struct RoundedMatrix {
  const Rounding *rounding;
  std::string parameter;  // the file's floats; in the graph their integers or codes
  Shape shape;            // of the floats
  std::size_t axis = 0;   // the one along which blocks lie
  // Names of the parameters that hold the rest: scales and zero points; or the codes of scales, the scales of these
  // codes, and the offset of all scales.
  std::vector<std::string> others = {};
};

// Finds what is rounded: frozen float32 matrices, and narrower ones, that are nothing but the right operand of
// products. In bfloat16 all frozen float32 parameters of two or more axes are.
std::vector<RoundedMatrix> find_rounded(const graph::Graph &graph, const Rounding &rounding);

// Makes the parameters integers or codes that a DequantizeLinear widens, or bfloat16 before a Cast. Adds the other
// parameters, and notes their names in `matrices`. A parameter that the graph lacks is left out.
void round_frozen(graph::Graph &graph, std::vector<RoundedMatrix> &matrices);

// The values of a rounded matrix.
struct RoundedValues {
  MemoryBlock room;                 // of the elements. The heap would keep memory of this size when it is freed
  std::vector<float> scales;        // for codes: the scales of the codes of scales
  std::vector<std::uint8_t> bytes;  // zero points; for codes: the codes of scales
  std::vector<float> offset;        // for codes: what is added to each scale

  // Integers or codes. Two of four bits are in a byte, the lower half first.
  std::span<std::uint8_t> elements() const { return {reinterpret_cast<std::uint8_t *>(room.data()), room.size()}; }

  // The values of the parameter itself (0), or of one of RoundedMatrix::others (1 and up).
  std::span<const std::byte> part(std::size_t i) const;
};

// Reads out.size() floats of the matrix, from element `first` on.
using ReadFloats = std::function<void(std::int64_t first, std::span<float> out)>;

// Rounds a matrix, whose floats are read a panel at a time. Code::nonfinite if one of them is not finite.
RoundedValues round(const RoundedMatrix &matrix, const ReadFloats &read);

// Replaces the floats of a matrix by those that they are rounded to.
void round_floats(const RoundedMatrix &matrix, std::span<float> floats);

}  // namespace protrain::passes
