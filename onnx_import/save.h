// Writes a model with other weights, tensor by tensor.
#pragma once

#include <map>
#include <string>

#include "onnx_import/floats.h"
#include "onnx_import/model.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// The model that Model::save() writes again with new weights. `initializers` are those of `proto`, by name.
struct OriginalModel {
  const ModelProto &proto;
  const std::map<std::string, Tensor> &initializers;
  const Storage &storage;
  const Floats &floats;
  bool in_checkpoint = false;  // the weights lie in a checkpoint, and an export need not have external data
  bool as_computed = false;    // floats are written in the graph's types
};
void save_model(const OriginalModel &original, const std::string &path, const Model::Weights &weights,
                std::uint64_t inline_bytes);

}  // namespace protrain::onnx_import
