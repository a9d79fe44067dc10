// Lives knows, for each value of a step, which node makes it, which node touches it last, and whether backward needs
// it. An alias of another value (the output of Reshape) counts as that value.
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
  // True if a forward node makes the value and a backward node reads it.
  bool saved(std::size_t value) const;
  // True if a single block saves the value, and its node can recompute it with little work from values that backward
  // reads anyway. Outputs of activation functions and normalizations are cheap. The output of a matrix product is cheap
  // only if each of its bytes takes few operations. (Selective activation recomputation: Korthikanti et al., arXiv
  // 2205.05198.)
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
