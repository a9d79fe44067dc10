// Loads a model's file and prepares a graph that can be differentiated, for drafts and for check.
#pragma once

#include <memory>

#include "draft/adapter_file.h"
#include "draft/batch.h"
#include "draft/export.h"
#include "draft/settings.h"
#include "onnx_import/model.h"
#include "passes/passes.h"

namespace protrain::draft {

struct LoadedModel {
  std::unique_ptr<onnx_import::Model> file;
  passes::PreparedModel prepared;
  graph::Graph outputs;  // computes the outputs that keep_outputs names; without nodes if there are none
  std::vector<std::string> output_names;       // the names of these outputs in the file
  std::shared_ptr<const AdapterFile> adapter;  // nullptr if the option adapter is not set
  std::vector<passes::RoundedMatrix> rounded;  // frozen weights that base_precision rounds
  Batch batch;
  graph::ValueId loss = graph::ValueId::none;
};

// Loads and prepares a model. `more` binds further dims, or overrides sizes of the settings.
LoadedModel load_model(const Settings &settings, const onnx_import::ModelSource &source,
                       const onnx_import::DimBindings &more = {});

// Prepares a model whose file is already open. `dims` binds all symbolic dims.
LoadedModel load_model(const Settings &settings, std::unique_ptr<onnx_import::Model> file,
                       const onnx_import::DimBindings &dims);

// Opens the adapters and prepares the graph, but does nothing else. So the model need not have a loss, and the result
// has no batch and no loss.
LoadedModel load_without_loss(const Settings &settings, std::unique_ptr<onnx_import::Model> file,
                              const onnx_import::DimBindings &dims);

// Finds the frozen weights that the option base_precision rounds. If it is bf16, these include weights that a step
// would hold in bfloat16 even without the option. Code::arg if the option is set but there are no weights that it can
// round.
std::vector<passes::RoundedMatrix> rounded_weights(const graph::Graph &graph, const Settings &settings);

// Returns the initializers that are tied to parameters.
std::map<std::string, Tie> ties_of(const std::vector<passes::Finding> &findings);

}  // namespace protrain::draft
