// ModelInput: what a session is fed: the inputs of the file, and the labels that an attached loss adds.
#pragma once

#include <optional>
#include <vector>

#include "graph/graph.h"
#include "onnx_import/model.h"
#include "passes/passes.h"

namespace protrain::draft {

// A dimension that follows from others, which the file does not tell.
inline const onnx_import::Dim kUnknownDim = std::string();

struct ModelInput : onnx_import::Input {
  bool has_dims = true;  // false: all follow from others
};

// As far as the file tells them.
std::vector<ModelInput> inputs_of(const onnx_import::Model &model, const std::optional<passes::Loss> &loss);

// Those of the file, and the others of the prepared graph, whose dims are numbers.
std::vector<ModelInput> inputs_of(const onnx_import::Model &model, const graph::Graph &prepared);

}  // namespace protrain::draft
