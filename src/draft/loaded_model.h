// Loads a model's file and prepares a graph that can be differentiated, for drafts and for check.
#pragma once

#include <memory>

#include "draft/batch.h"
#include "draft/settings.h"
#include "onnx_import/model.h"
#include "passes/passes.h"

namespace protrain::draft {

struct LoadedModel {
  std::unique_ptr<onnx_import::Model> file;
  passes::PreparedModel prepared;
  graph::Graph outputs;  // computes the outputs that keep_outputs names; without nodes if there are none
  std::vector<std::string> output_names;  // of these outputs, in the file
  Batch batch;
  graph::ValueId loss = graph::ValueId::none;
};

// `more` binds further dims, or overrides sizes of the settings.
LoadedModel load_model(const Settings &settings, const onnx_import::ModelSource &source,
                       const onnx_import::DimBindings &more = {});

// Does the same for a file that is already open. `dims` binds all symbolic dims.
LoadedModel load_model(const Settings &settings, std::unique_ptr<onnx_import::Model> file,
                       const onnx_import::DimBindings &dims);

}  // namespace protrain::draft
