#include "draft/batch.h"

#include <algorithm>

namespace protrain::draft {

namespace {

// Returns the dim's size; 0 if the dim is symbolic and not bound.
std::int64_t size_of_dim(const onnx_import::Dim &dim, const onnx_import::DimBindings &dims) {
  if (const auto *size = std::get_if<std::int64_t>(&dim)) return *size;
  const auto bound = dims.find(std::get<std::string>(dim));
  return bound == dims.end() ? 0 : bound->second;
}

}  // namespace

Batch batch_of(const std::vector<ModelInput> &inputs, const onnx_import::DimBindings &dims) {
  const auto has_axis = [](const ModelInput &input) { return !input.dims.empty(); };
  const auto has_tokens = [&](const ModelInput &input) { return has_axis(input) && is_integer(input.dtype); };
  auto input = std::ranges::find_if(inputs, has_tokens);
  const bool counts_tokens = input != inputs.end();
  if (!counts_tokens) input = std::ranges::find_if(inputs, has_axis);
  if (input == inputs.end()) return {};
  Batch batch{.input = input->name, .dim = {}, .samples = size_of_dim(input->dims[0], dims)};
  if (const auto *name = std::get_if<std::string>(&input->dims[0])) batch.dim = *name;
  if (!counts_tokens) return batch;
  batch.tokens_per_sample = 1;
  for (std::size_t axis = 1; axis < input->dims.size(); ++axis)
    batch.tokens_per_sample *= size_of_dim(input->dims[axis], dims);
  return batch;
}

}  // namespace protrain::draft
