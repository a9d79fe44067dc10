// SplitModel: a copy of a model in which some initializers are split into several, so that each has fewer readers.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/split.h"
#include "onnx_import/messages.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

class SplitModel {
 public:
  // Throws Code::internal if the model lacks an initializer or a reader that `splits` names.
  SplitModel(const ModelProto &original, const std::vector<graph::Split> &splits);

  const ModelProto &proto() const { return proto_; }
  const std::map<std::string, Tensor> &initializers() const { return initializers_; }

 private:
  void add_copy(const graph::Split &split);
  void drop_identities(const std::vector<graph::Split> &splits);
  void redirect(const std::vector<graph::Split> &splits);

  Messages messages_;
  ModelProto &proto_;
  std::map<std::string, Tensor> initializers_;  // point into proto_
};

}  // namespace protrain::onnx_import
