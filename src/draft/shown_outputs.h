// The outputs that the option keep_outputs names.
#pragma once

#include <string>
#include <vector>

#include "draft/settings.h"
#include "onnx_import/model.h"
#include "passes/passes.h"

namespace protrain::draft {

struct ShownOutputs {
  std::vector<graph::ValueId> of_file;
  bool log_probabilities = false;  // true: the loss dpo adds the output log_probabilities, which the file lacks
  std::vector<std::string> names;  // of these outputs, the file's first
};

// Returns the outputs that the patterns of keep_outputs match. Outputs of the file come first, in the file's order.
// Code::arg if a pattern matches no output.
ShownOutputs shown_outputs(const graph::Graph &graph, const Settings &settings);

// Turns a graph that computes the loss and then `shown` further outputs into one that evaluates only these outputs. The
// graph gets the parameters and inputs of `trained`, in the same order. The graph keeps its blocks only if `trained`
// has as many blocks. A parameter or input that only the outputs need is added to `trained` if `adopts` is true, as in
// a session that does not train. Throws Code::unsupported if such a value is there and `adopts` is false, or if a value
// has another type in `trained`. Also throws it if an output is not computed, because it is an input, a weight or a
// constant, or another shape of one.
void show_outputs(passes::PreparedModel &prepared, std::size_t shown, passes::PreparedModel &trained, bool adopts);

}  // namespace protrain::draft
