// Reads what a model's metadata declares about its initializers.
#pragma once

#include <map>
#include <string>

#include "graph/declared.h"
#include "onnx_import/model.pb.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// Throws Code::unsupported if a training_info updates none of `initializers`, and Code::format for malformed names.
graph::FileDeclarations read_declarations(const ModelProto &proto, const std::map<std::string, Tensor> &initializers,
                                          const std::string &path);

// Throws Code::shape if a moment does not have the type of its parameter.
void check_moments(const graph::FileTraining &training, const std::map<std::string, Tensor> &initializers);

}  // namespace protrain::onnx_import
