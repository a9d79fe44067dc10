// NonfiniteTrace: finds the node that made the first NaN or infinity of a step or an evaluation. It watches a second
// run and notes which values hold such numbers. Then it starts at the loss or gradient in which the checks found such a
// number, and goes back along values that are not finite, until it comes to a node whose inputs are finite.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "draft/shape_variant.h"
#include "run/executor.h"

namespace protrain::session {

class NonfiniteTrace final : public run::Watch {
 public:
  // The run that is watched: of a step's Program, or of an evaluation's. Everything that it refers to must outlive the
  // trace.
  struct Watched {
    const draft::ShapeVariant &variant;
    const program::Program &program;
    const graph::Graph &graph;  // the Program's
    // The values in which the Program looks for NaN and infinity. The squared norms are those of gradients, one for
    // each parameter; none in an evaluation.
    graph::ValueId loss;
    std::span<const graph::ValueId> squared_norms;
  };
  static Watched step(const draft::ShapeVariant &variant, const program::Program &program);
  static Watched evaluation(const draft::ShapeVariant &variant, const program::Program &program,
                            const graph::Graph &graph);

  NonfiniteTrace(const Watched &watched, run::Store &store);

  void before(std::size_t instruction) override;
  void after(std::size_t instruction) override;

  // The place where the first NaN or infinity came from.
  struct Origin {
    std::string subject;   // the node's name, or that of an input or a parameter
    std::string sentence;  // "Sqrt (/norm/Sqrt) made the first NaN, in /norm/Sqrt_output_0, from finite numbers"
  };
  // `status` names a loss or a gradient that is not finite. Returns where its NaN or infinity came from. Returns an
  // empty optional if this loss or gradient was finite in the run that was watched.
  std::optional<Origin> origin(program::StatusWord status) const;

 private:
  enum class Holds : std::uint8_t { unknown, finite, infinity, nan };

  void look_at(graph::ValueId id, const program::Operand &at);
  void keep_target(graph::ValueId id, const program::Operand &at);
  Holds holds(graph::ValueId id) const { return holds_[index(id)]; }
  Holds read(const program::Operand &at, const graph::Type &type) const;
  graph::ValueId walk_back(graph::ValueId at) const;
  graph::ValueId worst_input(const graph::Node &node, Holds at_least) const;
  bool adds_finite_numbers(const graph::Node &node) const;
  std::string describe(graph::ValueId at) const;
  bool counts_no_target() const;

  const Watched watched_;
  const graph::Graph &graph_;
  const program::Program &program_;
  run::Store &store_;
  std::vector<Holds> holds_;                // per value
  std::vector<graph::ValueId> target_ids_;  // the inputs of the loss that say which targets count
  graph::Attributes target_attributes_;
  std::vector<graph::Array> targets_;  // their values
};

}  // namespace protrain::session
