// Export: writes a model's file with other weights, and with adapters merged into theirs.
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

// A model that is exported.
struct Exported {
  const onnx_import::Model &file;
  const graph::Graph &graph;  // with the parameters
  const std::vector<graph::Split> &splits;
  const std::map<std::string, Tie> &ties;
  const std::vector<passes::Adapter> &adapters;
  const std::vector<passes::RoundedMatrix> &rounded;
  bool as_computed = false;         // floats are written in the graph's types
  bool adapters_as_inputs = false;  // else they are merged
};

// Writes a parameter's values to `out` as float32. Returns false if it has those of the file.
using Values = std::function<bool(const std::string &parameter, std::byte *out)>;

// Writes the file with these values. An adapted parameter becomes W plus its adapter's change, and a rounded one the
// floats that it was rounded to. Code::unsupported if the integers of a file would have to hold such a sum. If adapters
// become inputs, parameters stay as they are; Code::unsupported if a node reads one in another way than a product does.
void export_model(const Exported &model, const Values &values, const std::string &path);

}  // namespace protrain::draft
