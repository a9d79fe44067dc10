// Floats: chooses the element types of a graph's floats. A file may hold its floats in 16 or 64 bits. The graph has
// float32 in their place, because the session's precision decides in what type a step computes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "graph/graph.h"

namespace protrain::onnx_import {

// Converts `count` floats, rounded to nearest even. Finite numbers stay finite: they are clamped to the largest finite
// number of `to`. Also converts integers of up to 32 bits to wider ones.
void convert_floats(DType from, const std::byte *in, std::int64_t count, DType to, std::byte *out);

class Floats {
 public:
  Floats() = default;
  // `doubles` is true for a model that mainly computes in float64. Its float64 becomes float32, like float16 and
  // bfloat16. In other models float64 stays, because some exporters use it in nodes that are folded.
  explicit Floats(bool doubles) : doubles_(doubles) {}

  // computed(dtype) returns the type that elements of `dtype` in the file have in the graph. Only floats can change.
  // computed(array) returns the array converted to that type.
  DType computed(DType dtype) const;
  graph::Array computed(const graph::Array &array) const;
  // Replaces the float types in a node's attributes by those of the graph: types that an attribute names, such as `to`
  // of Cast, and types of tensors, whose values are converted.
  void compute(graph::Attributes &attributes) const;

 private:
  bool doubles_ = false;
};

}  // namespace protrain::onnx_import
