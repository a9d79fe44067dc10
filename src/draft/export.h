// Export: writes a model's file with new weights. Adapters are merged into the weights, or become inputs of the model.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_import/model.h"
#include "passes/adapter.h"
#include "passes/parameters/rounded.h"

namespace protrain::draft {

// An initializer of the file that is tied to a parameter, or to its transpose.
struct Tie {
  std::string parameter;
  bool transposed = false;
};

// The model to export.
struct Exported {
  const onnx_import::Model &file;
  const graph::Graph &graph;  // the prepared graph
  const std::vector<graph::Split> &splits;
  const std::map<std::string, Tie> &ties;
  const std::vector<passes::Adapter> &adapters;
  const std::vector<passes::RoundedMatrix> &rounded;
  bool as_computed = false;         // floats are written in the graph's types
  bool adapters_as_inputs = false;  // false: adapters are merged into the weights
};

// Writes a parameter's values to `out` as float32. Returns false if the parameter still has the file's values.
using Values = std::function<bool(const std::string &parameter, std::byte *out)>;

// Writes the model's file with `values` in place of its own. A rounded parameter is written as the floats that it was
// rounded to.
//   If adapters are merged, an adapted parameter is written as its weights plus its adapter's change. Throws
// Code::unsupported if these weights are integers in the file.
//   If adapters become inputs, an adapted parameter keeps the file's values, rounded if base_precision rounds them.
// Throws Code::unsupported if a node that is no product or lookup reads the parameter.
void export_model(const Exported &model, const Values &values, const std::string &path);

}  // namespace protrain::draft
