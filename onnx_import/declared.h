// Reads what a model's metadata declares about its initializers.
#pragma once

#include <map>
#include <string>

#include "graph/declared.h"
#include "onnx_import/model.pb.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// Returns what the metadata and the training_infos declare. Throws Code::unsupported if there are training_infos and
// none of them updates any of `initializers`. Throws Code::format for malformed names.
graph::FileDeclarations read_declarations(const ModelProto &proto, const std::map<std::string, Tensor> &initializers,
                                          const std::string &path);

// Throws Code::shape if a moment does not consist of floats or does not have the shape of its parameter.
void check_moments(const graph::FileTraining &training, const std::map<std::string, Tensor> &initializers);

}  // namespace protrain::onnx_import
