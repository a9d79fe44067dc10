// IndexChecks: checks the inputs before a step begins. An error names the input that holds a value which the step could
// not use, such as a token beyond the vocabulary. Kernels check the same, but in the middle of a step, when other ranks
// already wait for this one. Kernels do not know the name of the input either.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace protrain::session {

class IndexChecks {
 public:
  // Follows `inputs` of a training graph, through nodes that only move elements, to the nodes that read them as indices
  // or labels. Indices that are computed in other ways are left to the checks of the kernels, and so are indices in
  // values with very many elements.
  IndexChecks(const graph::Graph &graph, std::vector<graph::ValueId> inputs);

  // A value that a node refuses.
  struct Fault {
    std::size_t check;
    std::int64_t value, row;
  };
  // Returns the first fault among the values of input number `input`, counted from 0. `data` has the input's type.
  // Allocates nothing.
  std::optional<Fault> fault_in(std::size_t input, const void *data) const;
  // Throws Code::arg with the input's name, the value and what is accepted.
  [[noreturn]] void refuse(const Fault &fault) const;

 private:
  enum class What : std::uint8_t { index, label, length };
  // The elements of an input that one node reads, and the values that the node accepts: `ignored`, and all values from
  // `lowest` to `beyond` - 1 except `blank`.
  struct Check {
    std::size_t input;
    std::string read_from;  // the table into which an index points
    What what;
    std::int64_t lowest, beyond;
    std::optional<std::int64_t> ignored, blank;
    std::vector<std::uint32_t> elements, rows;  // positions in the input, and in the node's operand
  };
  class Trace;
  struct Operand;
  static std::vector<Operand> operands_of(const graph::Graph &graph, const graph::Node &node);
  void add_check(Trace &trace, const graph::Node &node, const Operand &operand);

  const graph::Graph &graph_;
  const std::vector<graph::ValueId> inputs_;
  std::vector<Check> checks_;
};

}  // namespace protrain::session
