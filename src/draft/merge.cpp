#include "draft/merge.h"

#include <algorithm>

#include "draft/dims.h"
#include "draft/export.h"
#include "draft/loaded_model.h"
#include "draft/past.h"

namespace protrain::draft {

void merge_adapter(const Options &options, const std::string &model_path, const std::string &adapter_directory,
                   const std::string &path) {
  Options with_adapter = options;
  with_adapter.set("adapter", adapter_directory);
  const Settings settings = settings_of(with_adapter);
  std::unique_ptr<onnx_import::Model> file = onnx_import::Model::open(model_path);
  onnx_import::DimBindings dims = settings.dims;
  if (settings.without_past) bind_past(*file, dims);
  for (const auto &[name, dim] : settle_dims(*file, dims, settings.constants)) dims[name] = dim.value;
  const LoadedModel model = load_without_loss(settings, std::move(file), dims);
  const auto ties = ties_of(model.prepared.findings);
  const auto rounded = rounded_weights(model.prepared.graph, settings);
  const auto values = [&](const std::string &name, std::byte *out) {
    const passes::AdapterMatrix *matrix = passes::find_matrix(model.prepared.adapters, name);
    if (matrix == nullptr) return false;
    std::vector<float> found(static_cast<std::size_t>(element_count(matrix->shape)));
    model.adapter->read(matrix->tensor, 0, found);
    std::ranges::copy(std::as_bytes(std::span(found)), out);
    return true;
  };
  export_model({.file = *model.file,
                .graph = model.prepared.graph,
                .splits = model.prepared.splits,
                .ties = ties,
                .adapters = model.prepared.adapters,
                .rounded = rounded,
                .as_computed = settings.export_as_computed,
                .adapters_as_inputs = settings.export_adapters_as_inputs},
               values, path);
}

}  // namespace protrain::draft
