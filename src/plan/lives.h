// Lives: what becomes of each value that a step computes, by the value whose bytes it is (Reshape makes another name).
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
  // Saved, made in one pass over what backward reads anyway: next to nothing to compute again. Activations and
  // normalizations; of products only those too thin to matter. (Selective activation recomputation: Korthikanti et al.,
  // arXiv 2205.05198.)
  bool light(std::size_t value) const { return light_[value]; }
  int owner(std::size_t value) const { return owner_[value]; }  // the one block whose forward touches it, else negative
  std::size_t made(std::size_t value) const { return made_[value]; }  // by which node
  std::size_t last(std::size_t value) const { return last_[value]; }  // the last node that touches it

 private:
  void visit(std::size_t node);
  void touch(std::size_t value, std::size_t node);
  bool makes_light(const graph::Node &node) const;

  const graph::Graph &graph_;
  std::vector<std::size_t> root_;
  std::vector<int> owner_;
  std::vector<std::size_t> made_, last_;
  std::vector<bool> backward_, light_;
};

}  // namespace protrain::plan
