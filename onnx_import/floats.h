// Floats: chooses the element types of a graph's floats. A file may hold its floats in 16 or 64 bits. The graph has
// float32 instead: the type in which a step computes depends on the session's precision, not on the file.
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
  // `doubles` is true for a model that mainly computes in float64. In the graph of such a model, float32 replaces
  // float64 as well as float16 and bfloat16. In the graphs of other models float64 stays, because some exporters use it
  // in nodes that are folded.
  explicit Floats(bool doubles) : doubles_(doubles) {}

  // computed(dtype) takes an element type of the file, and returns the type of such elements in the graph. Only float
  // types can differ between the two. computed(array) returns the array converted to the graph's type.
  DType computed(DType dtype) const;
  graph::Array computed(const graph::Array &array) const;
  // Changes a node's attributes from the file's float types to those of the graph. Some attributes name a type, such as
  // `to` of Cast. Others hold a tensor, whose values are converted.
  void compute(graph::Attributes &attributes) const;

 private:
  bool doubles_ = false;
};

}  // namespace protrain::onnx_import
