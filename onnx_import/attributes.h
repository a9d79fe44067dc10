// Reads a node's attributes into the form that the graph holds.
#pragma once

#include <string>

#include "graph/attributes.h"
#include "onnx_import/model.pb.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// Returns the node's attributes, with the values of tensors loaded. The subject of errors is "subject.attribute".
// Throws Code::graph if an attribute is malformed, and Code::unsupported for kinds that are not read, such as graphs.
// Skips the bodies of control flow operators, because Scope reads them (scope.h).
graph::Attributes read_attributes(const NodeProto &node, const std::string &subject, const Storage &storage);

}  // namespace protrain::onnx_import
