// Lives: which node makes each value of a step, which node touches it last, and whether backward needs it. An alias of
// other bytes (Reshape) counts as the value that owns them.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace protrain::plan {

class Lives {
 public:
  explicit Lives(const graph::Graph &graph);

  std::uint64_t bytes(std::size_t value) const;
  bool computed(std::size_t value) const;
  // Made by a forward node, read by a backward one.
  bool saved(std::size_t value) const;
  // Saved, and cheap to recompute: one pass over values that backward reads anyway makes it. Activations and
  // normalizations are cheap; products are only when they are too thin to matter. (Selective activation recomputation:
  // Korthikanti et al., arXiv 2205.05198.)
  bool cheap(std::size_t value) const { return cheap_[value]; }
  int owner(std::size_t value) const { return owner_[value]; }  // the one block whose forward touches it, else negative
  std::size_t made(std::size_t value) const { return made_[value]; }  // the node that makes it
  std::size_t last(std::size_t value) const { return last_[value]; }  // the last node that touches it

 private:
  void visit(std::size_t node);
  void touch(std::size_t value, std::size_t node);
  bool makes_cheap(const graph::Node &node) const;

  const graph::Graph &graph_;
  std::vector<std::size_t> root_;
  std::vector<int> owner_;
  std::vector<std::size_t> made_, last_;
  std::vector<bool> backward_, cheap_;
};

}  // namespace protrain::plan
