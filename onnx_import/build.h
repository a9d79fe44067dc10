// Makes a graph from parsed messages.
#pragma once

#include "onnx_import/unbound_graph.h"

namespace protrain::onnx_import {

// Builds the graph of a model. `proto` must have no functions and must outlive the result. Throws Code::graph, format,
// type, shape, limit, version, unsupported, path, io.
UnboundGraph build_unbound(const ModelProto &proto, const Storage &storage);

}  // namespace protrain::onnx_import
