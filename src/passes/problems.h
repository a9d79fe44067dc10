// Problems: the operators that keep a graph from being trained, grouped by reason. Nodes that depend on such operators
// cannot be checked, and are only counted.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

class Problems {
 public:
  // Collects unknown operators, and operators without a core form. `refusals` has the reason why a node
  // has no core form, under the node's first output. A node that reads untyped values depends on an operator of these
  // two kinds, so the node is only counted.
  void collect_without_core_form(const graph::Graph &graph, const std::map<graph::ValueId, std::string> &refusals);
  // Collects the operators without a gradient that lie between a trained parameter and the loss.
  void collect_without_gradient(const graph::Graph &graph);

  bool any() const { return !problems_.empty(); }
  void require_none() const;  // throws Untrainable

 private:
  void add(const graph::Node &node, const std::string &reason);

  std::vector<Problem> problems_;
  std::size_t behind_ = 0;
};

}  // namespace protrain::passes
