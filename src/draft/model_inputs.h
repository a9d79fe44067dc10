// ModelInput: an input that the user feeds to a session. The file has this input, or an attached loss adds it, for
// example for its labels.
#pragma once

#include <optional>
#include <vector>

#include "draft/settings.h"
#include "graph/graph.h"
#include "onnx_import/model.h"
#include "passes/passes.h"

namespace protrain::draft {

// A dimension whose size depends on other dimensions in a way that the file does not say.
inline const onnx_import::Dim kUnknownDim = std::string();

struct ModelInput : onnx_import::Input {
  bool has_dims = true;  // false: the file does not tell how many dims there are
};

// Returns the file's inputs, plus those that options add, with the dims that the file gives. Leaves out inputs that are
// bound to values.
std::vector<ModelInput> inputs_of(const onnx_import::Model &model, const Settings &settings);

// True if one of the input's dims is bound to 0.
bool has_no_elements(const ModelInput &input, const onnx_import::DimBindings &dims);

// Returns the inputs of the prepared graph. Inputs that the file has too come first, with the dims that the file gives.
// The dims of all other inputs are numbers.
std::vector<ModelInput> inputs_of(const onnx_import::Model &model, const graph::Graph &prepared);

}  // namespace protrain::draft
