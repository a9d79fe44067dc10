// Tensors that PyTorch's older exporter merged.
#pragma once

#include <map>
#include <string>

#include "graph/declared.h"
#include "onnx_import/messages.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// Returns the Identity nodes that may stand for tensors of their own, by their outputs. Of several equal tensors,
// PyTorch's older exporter stores one, and writes each other one as an Identity of the stored one. The output has the
// tensor's name: "layers.1.norm.weight".
//   The exporter can also store a tensor that it has computed, such as a transposed matrix. It names such a tensor
// "onnx::MatMul_12", and makes one for each use of the matrix. Such an Identity counts only between two modules,
// because one module that is used twice has one matrix.
//   Returns nothing for the files of other exporters. Nodes of PyTorch's newer exporter have metadata. Names of nodes
// without a scope belong to old versions, or to a scripted module, where an Identity can also stand for one and the
// same tensor.
std::map<std::string, graph::MergedTensor> merged_tensors(const ModelProto &proto,
                                                          const std::map<std::string, Tensor> &initializers);

}  // namespace protrain::onnx_import
