// UnboundGraph: a graph made from parsed messages, before the dims of its inputs are bound.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/bodies.h"
#include "onnx_import/floats.h"
#include "onnx_import/model.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

struct UnboundGraph {
  graph::Graph graph;  // sorted; inputs have a dtype but no shape, `deferred` constants have no array
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  // Tensors in the file's types. `initializers` holds all initializers of the file, even if nothing reads them.
  // `deferred` holds constants whose values are read once the dims are bound.
  std::map<std::string, Tensor> initializers;
  std::map<graph::ValueId, Tensor> deferred;
  // Initializers and constants of four-bit elements that only DequantizeLinear or GatherBlockQuantized reads. In the
  // graph they are vectors of the file's bytes. Attributes of these nodes tell what the bytes hold
  // (src/ops/quantize.cpp).
  std::set<graph::ValueId> packed;
  Floats floats;
  graph::Bodies bodies;
};

}  // namespace protrain::onnx_import
