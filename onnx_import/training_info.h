// ONNX's training_info: an algorithm that a file holds beside the graph. It computes a loss from the graph's outputs,
// then the gradients of some initializers, and from these the new values of the initializers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/declared.h"
#include "onnx_import/messages.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

struct JoinedTraining {
  graph::FileTraining training;
  std::vector<std::string> trained;  // initializers
};

// Adds to the graph what the algorithm's loss needs, and the loss as an output. Also adds the optimizer's moments, as
// initializers that no node reads. Returns how the algorithm trains, or an empty optional if the file has no algorithm.
// If this library cannot train as the algorithm does, `training.refusal` tells why.
std::optional<JoinedTraining> join_training(ModelProto &proto, const Storage &storage);

}  // namespace protrain::onnx_import
