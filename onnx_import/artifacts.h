// The artifacts of onnxruntime-training: a training model, an eval model, an optimizer model and a checkpoint, side by
// side. The models have their parameters as inputs, and the checkpoint holds the parameters' values. The training model
// also computes gradients. This library keeps only its forward part, and builds gradients of its own.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/declared.h"
#include "onnx_import/messages.h"
#include "onnx_import/model.pb.h"
#include "onnx_import/ort_checkpoint.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// If `path` is a folder, returns the training model in it. Code::io if it has none, or several.
std::string training_model_in(const std::string &path);

// True if the model accumulates gradients as a training model of onnxruntime-training does.
bool is_training_model(const ModelProto &proto);

class Artifacts {
 public:
  // Reads the checkpoint that lies beside the training model of `storage`, and the optimizer model if there is one.
  explicit Artifacts(const Storage &storage);

  // Drops the backward part of a training model: the outputs that are accumulated gradients, and all nodes that no
  // other output needs. Returns the parameters whose gradients were accumulated.
  std::vector<std::string> cut(ModelProto &proto, Messages &messages) const;
  // Turns each input of the graph whose values the checkpoint holds into an initializer.
  void bind(ModelProto &proto, Messages &messages) const;
  // Adds the moments of `trained` parameters as initializers that no node reads. Returns what the artifacts say about
  // the training.
  graph::FileTraining add_moments(ModelProto &proto, const std::vector<std::string> &trained) const;

  // Returns the eval model's path, or an empty optional if there is no eval model.
  std::optional<std::string> eval_model() const;
  // Returns the paths of all files that this object was read from.
  std::set<std::string> files() const;

 private:
  void add_initializer(ModelProto &proto, const CheckpointTensor &tensor, const std::string &name) const;
  std::optional<std::string> find(const char *file) const;

  const std::vector<std::string> roots_;
  const std::string prefix_;  // of the files' names
  OrtCheckpoint checkpoint_;
  std::vector<std::pair<std::string, std::string>> optimizer_;  // as options
  std::optional<Error> refusal_;                                // of the optimizer
};

}  // namespace protrain::onnx_import
