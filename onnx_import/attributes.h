// A node's attributes as the graph holds them.
#pragma once

#include <string>

#include "graph/attributes.h"
#include "onnx_import/model.pb.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// Code::graph for an attribute that is malformed, Code::unsupported for one of a kind this library has no use for
// (subgraphs among them, but for operators of control flow, whose graphs are left out); the subject is
// "node.attribute". Tensors are read.
graph::Attributes read_attributes(const NodeProto &node, const std::string &subject, const Storage &storage);

}  // namespace protrain::onnx_import
