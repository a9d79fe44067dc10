#include "program/storage.h"

#include "ops/op.h"

namespace protrain::program {

std::vector<graph::ValueId> storage_roots(const graph::Graph &graph) {
  std::vector<graph::ValueId> roots(graph.value_count());
  for (std::size_t i = 0; i < roots.size(); ++i) roots[i] = static_cast<graph::ValueId>(i);
  for (const graph::Node &node : graph.nodes())
    if (ops::storage_of(node) != ops::Storage::own) roots[index(node.outputs[0])] = roots[index(node.inputs[0])];
  return roots;
}

}  // namespace protrain::program
