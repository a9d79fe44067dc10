// The data that a model takes: its inputs, and what their dimensions mean.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "data_flags.h"
#include "handles.h"

namespace tool {

// A dim of an input: a number, the name of a symbolic dimension, or "" for one that depends on others.
using Dim = std::variant<std::int64_t, std::string>;

struct ModelInput {
  std::string name, dtype;
  std::optional<std::vector<Dim>> dims;  // nothing: the model does not say how many there are
};

std::string names_of(const std::vector<ModelInput> &inputs);  // "input_ids, labels"
std::string dims_text(const std::vector<Dim> &dims);          // "(batch, 64)"
std::string forms_of(const ModelInput &input);                // says which shapes arrays for the input have
// Returns the input of that name. Throws UsageError if there is none.
const ModelInput &find_input(const std::vector<ModelInput> &inputs, std::string_view name);

using Dims = std::map<std::string, std::int64_t>;

// The data that a model takes, as `check` describes it.
struct ModelData {
  std::string path;
  std::vector<std::string> files;  // that the model is read from
  std::vector<ModelInput> inputs;
  Dims bound;                          // sizes given by the option `dim`
  std::string batch_input;             // the input whose axis 0 counts samples
  bool has_tokens = false;             // the elements along the other axes are tokens
  bool loss_is_cross_entropy = false;  // exp(loss) is the perplexity
};

// Describes the data of a model. If the flags ask for packed documents, sets the option `packed`, so that the model
// takes the tokens' positions in their documents.
ModelData data_of(const Options &options, const std::string &model, const DataFlags &flags);

// Returns the paths of the files that a model is read from, as `check` lists them.
std::vector<std::string> files_of(const Options &options, const std::string &model);

}  // namespace tool
