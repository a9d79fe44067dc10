// Problems: the operators that a graph cannot be trained for, by kind, and the number of nodes behind them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

class Problems {
 public:
  // Nodes with graphs of their own; to be called before any pass, while dead nodes are still there.
  void collect_control_flow(const graph::Graph &graph);
  // Unknown operators and those without a core form. `refusals` are fold()'s. A node that reads what has no type is
  // behind one of these, and only counted.
  void collect_without_core_form(const graph::Graph &graph, const std::map<graph::ValueId, std::string> &refusals);
  // Operators between a trained parameter and the loss that have no gradient.
  void collect_without_gradient(const graph::Graph &graph);

  bool any() const { return !problems_.empty(); }
  void require_none() const;  // Untrainable

 private:
  void add(const graph::Node &node, const std::string &reason);

  std::vector<Problem> problems_;
  std::size_t behind_ = 0;
};

}  // namespace protrain::passes
