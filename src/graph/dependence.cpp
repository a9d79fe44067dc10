#include "graph/dependence.h"

#include <algorithm>

namespace protrain::graph {

std::vector<bool> with_dependencies(const Graph &graph, std::vector<bool> marked, bool (*cuts)(const Node &)) {
  const auto is_marked = [&](ValueId id) { return id != ValueId::none && marked[index(id)]; };
  for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node)
    if (std::ranges::any_of(node->outputs, is_marked) && (cuts == nullptr || !cuts(*node)))
      for (ValueId in : node->inputs)
        if (in != ValueId::none) marked[index(in)] = true;
  return marked;
}

}  // namespace protrain::graph
