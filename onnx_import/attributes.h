// A node's attributes as the graph holds them.
#pragma once

#include <string>

#include "graph/attributes.h"
#include "onnx_import/model.pb.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// The subject of errors is "node.attribute". Code::graph if an attribute is malformed. Code::unsupported for kinds this
// library has no use for, such as subgraphs. Subgraphs of control flow operators are skipped, because their nodes are
// refused later. The values of tensors are loaded.
graph::Attributes read_attributes(const NodeProto &node, const std::string &subject, const Storage &storage);

}  // namespace protrain::onnx_import
