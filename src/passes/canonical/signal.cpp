// Rules for Fourier transforms. A transform becomes a product with a matrix of constants, which takes length * bins
// operations.
#include <fmt/format.h>
#include <numeric>

#include "base/error.h"
#include "ops/signal.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kMostTerms = std::int64_t{1} << 25;  // elements of a matrix

// Computes a DFT along one axis: (..., length, ..., parts) -> (..., bins, ..., parts of the results). The last axis
// holds the real part and, unless it has one element, the imaginary part. For the product, the transformed axis is
// moved directly before the last axis, and afterwards it is moved back.
bool dft(Canonical &c, Node &node) {
  if (has(node, 1) || has(node, 2)) return false;
  const Type result = c.infer(node).at(0);
  ValueId x = node.inputs.at(0);
  const ops::Fourier fourier = ops::fourier_of(node, c.shape(x));
  const auto axis = static_cast<std::int64_t>(fourier.axis);
  const std::int64_t rows = std::min(c.shape(x)[fourier.axis], fourier.terms), parts = c.shape(x).back();
  const std::int64_t columns = fourier.bins * fourier.parts;
  require(rows * parts <= kMostTerms / 2 && columns <= kMostTerms / std::max<std::int64_t>(1, rows * parts),
          Code::limit, node.name, "a transform of {} elements is too long", fourier.length);
  x = c.add("Slice", {x}, {{"starts", Integers{0}}, {"ends", Integers{rows}}, {"axes", Integers{axis}}});
  const auto rank = static_cast<std::int64_t>(c.shape(x).size());
  Integers there(static_cast<std::size_t>(rank)), back(there.size());
  std::iota(there.begin(), there.end(), 0);
  there.erase(there.begin() + axis);
  there.insert(there.end() - 1, axis);
  for (std::size_t i = 0; i < there.size(); ++i)
    back[static_cast<std::size_t>(there[i])] = static_cast<std::int64_t>(i);
  x = c.transpose(x, there);
  Shape moved = c.shape(x);
  const std::int64_t count = element_count({moved.begin(), moved.end() - 2});
  const Type type = {result.dtype, {rows * parts, columns}};
  const std::string key = fmt::format("DFT {} {} {} {}", fourier.length, fourier.inverse, parts, fourier.parts);
  const ValueId matrix = c.constant(
      key, type, [&] { return graph::Array::from_doubles(type, ops::fourier_matrix(fourier, rows, parts)); });
  x = c.add("MatMul", {c.reshape(x, {count, rows * parts}), matrix});
  moved.end()[-2] = fourier.bins;
  moved.back() = fourier.parts;
  c.become(node, "Transpose", {c.reshape(x, moved)}, {{"perm", back}});
  return true;
}

// Computes an STFT. Cuts the signal (N, length, parts) into frames (N, frames, frame length, parts), multiplies each
// frame by the window if there is one, and transforms the frames with a DFT.
bool stft(Canonical &c, Node &node) {
  if (has(node, 1) || has(node, 3)) return false;
  const Shape result = c.infer(node).at(0).shape;
  const Integers given = node.attributes.integers("frame_length");
  const std::int64_t step = node.attributes.integers("frame_step").at(0);
  const std::int64_t length = given.empty() ? c.shape(node.inputs.at(2)).at(0) : given[0];
  require(element_count({result[1], length}) <= kMostTerms, Code::limit, node.name,
          "{} frames of {} elements are too many", result[1], length);
  const Type type = {DType::i64, {result[1], length}};
  const ValueId indices = c.constant(fmt::format("STFT {}", step), type, [&] {
    Integers places;
    for (std::int64_t frame = 0; frame < result[1]; ++frame)
      for (std::int64_t i = 0; i < length; ++i) places.push_back(frame * step + i);
    return graph::Array::from_integers(type, places);
  });
  ValueId frames = c.add("Gather", {node.inputs[0], indices}, {{"axis", std::int64_t{1}}});
  if (has(node, 2)) frames = c.add("Mul", {frames, c.reshape(node.inputs[2], {length, 1})});
  c.become(node, "DFT", {frames}, {{"axis", std::int64_t{2}}, {"onesided", node.attributes.integer("onesided", 1)}});
  return true;
}

}  // namespace

Rules signal_rules() { return {{"DFT", dft}, {"STFT", stft}}; }

}  // namespace protrain::passes
