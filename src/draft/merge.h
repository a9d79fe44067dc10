// Merging: a file of adapters becomes part of a model, without a session.
#pragma once

#include <string>

#include "draft/options.h"

namespace protrain::draft {

// Merges the adapter in `adapter_directory` into the model, and writes the merged model to `path`. Uses those options
// that say how to read a model and its parameters. Symbolic dims that no option binds are inferred or assumed, as in
// check_model().
void merge_adapter(const Options &options, const std::string &model_path, const std::string &adapter_directory,
                   const std::string &path);

}  // namespace protrain::draft
