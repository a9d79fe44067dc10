// ONNX's training_info: an algorithm beside the graph, which computes a loss from the graph's outputs, the gradients of
// some initializers, and their new values.
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

// Adds to the graph what the algorithm's loss needs, the loss as an output, and the optimizer's moments as initializers
// that no node reads. Returns what the algorithm says; nothing if the file has none. If the algorithm computes
// something that this library would compute otherwise, the training's `refusal` names the node.
std::optional<JoinedTraining> join_training(ModelProto &proto, const Storage &storage);

}  // namespace protrain::onnx_import
