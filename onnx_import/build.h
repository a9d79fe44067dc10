// Makes a graph from parsed messages. The dims of the graph's inputs are not bound yet.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_import/floats.h"
#include "onnx_import/model.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

struct UnboundGraph {
  graph::Graph graph;  // sorted; inputs have a dtype but no shape, `deferred` constants have no array
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  // In the file's types: all initializers, even if nothing reads them, and constants.
  std::map<std::string, Tensor> initializers;
  std::map<graph::ValueId, Tensor> deferred;
  Floats floats;
};

// `proto` must have no functions and must outlive the result. Throws Code::graph, format, type, shape, limit, version,
// unsupported, path, io.
UnboundGraph build_unbound(const ModelProto &proto, const Storage &storage);

// Returns the tensor of a Constant node's "value"; nullptr for other nodes and other forms.
const TensorProto *constant_tensor(const NodeProto &node);

}  // namespace protrain::onnx_import
