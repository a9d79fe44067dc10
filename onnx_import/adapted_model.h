// AdaptedModel: a copy of a model with inputs for low-rank adapters. Each input has a default: matrices of rank 0,
// which change nothing. So the file runs as the base does, and an adapter is a set of values for these inputs.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/low_rank.h"
#include "onnx_import/messages.h"
#include "onnx_import/tensors.h"

namespace protrain::onnx_import {

// Returns ONNX's number of the float type in which a graph computes with an initializer. For floats this is the
// initializer's own type. For integers it is the type that DequantizeLinear gives them, or float32 if other nodes
// dequantise them.
std::int32_t computed_type(const GraphProto &graph, const std::string &initializer);

class AdaptedModel {
 public:
  // Throws Code::unsupported with the node's name if anything but a product or a lookup computes with an adapted
  // initializer.
  AdaptedModel(const ModelProto &original, const std::vector<graph::LowRank> &adapters);

  const ModelProto &proto() const { return proto_; }
  const std::map<std::string, Tensor> &initializers() const { return initializers_; }

 private:
  // A value that an adapter changes: an initializer W, or the result of nodes that only pass W on, such as a Transpose.
  struct Adapted {
    const graph::LowRank *adapter;
    bool transposed;    // of shape (in, out)
    std::int32_t type;  // ONNX's number of the float type; 0 for integers that are not yet dequantised
  };
  void add_inputs(const graph::LowRank &adapter);
  void add_input(const std::string &name, const Shape &shape, std::int32_t type);
  void find_adapted();
  void rewrite();
  void require_no_reader(const GraphProto &body, const NodeProto &node) const;
  const char *advice(const std::string &value) const;
  std::optional<Adapted> passed_on(const NodeProto &node, const std::string &w) const;
  void adapt(NodeProto node, const std::vector<std::string> &changed);
  std::string transpose_of(const std::string &matrix);
  std::string matrix_for(const Adapted &value, const std::string &matrix);
  NodeProto &add(const char *op, const std::vector<std::string> &inputs, const std::string &output);

  Messages messages_;
  ModelProto &proto_;
  std::map<std::string, Tensor> initializers_;                         // point into proto_
  std::map<std::string, Adapted> adapted_;                             // by the value's name
  std::map<const graph::LowRank *, std::int32_t> types_;               // of the inputs
  std::map<std::string, std::string> transposes_;                      // by the matrix's name
  std::map<std::pair<std::string, std::int32_t>, std::string> casts_;  // by the matrix's name and the type
  std::set<std::string> names_, node_names_;                           // of all values, and of all nodes
};

}  // namespace protrain::onnx_import
