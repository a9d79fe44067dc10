// Tensors that PyTorch's older exporter merged.
#pragma once

#include <map>
#include <set>
#include <string>

#include "onnx_import/messages.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// Returns the outputs of Identity nodes that stand for tensors of their own. Of several equal tensors, PyTorch's older
// exporter stores one, and writes each other one as an Identity of the stored one. The output has the tensor's name:
// "layers.1.norm.weight". A tensor that the model itself shares has one name and no Identity.
//   The exporter can also store a tensor that it has computed, such as a transposed matrix. It names such a tensor
// "onnx::MatMul_12", and makes one for each use of the matrix. So an Identity between two of them is no proof: either
// one matrix is used twice, or two matrices are equal. They count as two if they are used in two modules, and if these
// modules have another pair of equal tensors, such as their biases.
//   Returns nothing for the files of other exporters. Nodes of PyTorch's newer exporter have metadata.
std::set<std::string> copies_of_stored(const ModelProto &proto, const std::map<std::string, Tensor> &initializers);

}  // namespace protrain::onnx_import
