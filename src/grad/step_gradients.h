// StepGradients: makes the gradients of a step from those of one micro-batch. It emits the sums over micro-batches, the
// exchanges between ranks, the norms, and the factor that Updates apply.
#pragma once

#include <utility>
#include <vector>

#include "grad/emitter.h"
#include "grad/training_graph.h"

namespace protrain::grad {

// Without local_sums the sums have the same bits on any number of ranks, because each rank receives the gradients of
// its own shards from all ranks, and adds them in the order of micro-batches, as a single rank would. With local_sums
// each rank first adds the gradients of its own micro-batches, and the ranks exchange these sums.
//   For the norm, the squares of gradients are summed in grains (kGrain elements each), and then the grains' sums are
// added in a fixed tree. Grains do not depend on the number of ranks.
class StepGradients {
 public:
  StepGradients(Training &training, Emitter &emitter, const TrainingSettings &settings)
      : training_(training), graph_(training.graph), emitter_(emitter), settings_(settings) {}

  // Emits the weight that this micro-batch has in the gradients of the whole step. Must be called before finish().
  void weigh(graph::ValueId loss);
  // Emits the sum, the exchange and the norm of a parameter's gradient. The gradient must be complete: nothing more is
  // added to it in this micro-batch. A gradient may wait for other gradients of its block, so that one node can handle
  // several gradients.
  void finish(std::size_t parameter, graph::ValueId gradient);
  // Emits the nodes of the gradients that finish() has left waiting: one exchange for all of them, and one node for the
  // norms of the small ones.
  void finish_waiting();
  // Emits the step's loss, then the norm of all gradients and the factor to scale them by.
  void join();

 private:
  bool shared() const { return training_.shards.ranks > 1; }
  const graph::Type &type(graph::ValueId value) const { return graph_.value(value).type; }
  const std::string &name_of(std::size_t parameter) const { return graph_.value(graph_.parameters[parameter]).name; }

  graph::ValueId weight_of(graph::ValueId loss);
  graph::Attributes parts() const;
  graph::ValueId sum_parts(const Shape &shape, const std::vector<graph::ValueId> &parts_and_weight);
  graph::ValueId add(std::size_t parameter, const Shape &shape, graph::ValueId gradient);
  graph::ValueId add_own(std::size_t parameter, graph::ValueId gradient);
  void measure(std::size_t parameter, graph::ValueId gradient);
  void square(const std::vector<std::size_t> &parameters);
  void square_waiting();
  void exchange_waiting();
  graph::Attributes between_ranks(std::vector<std::int64_t> bounds) const;
  graph::ValueId of_all_ranks(graph::ValueId scalar);
  void join_squares();
  graph::ValueId join_weights();
  void scale_by(graph::ValueId norm);

  Training &training_;
  graph::Graph &graph_;
  Emitter &emitter_;
  const TrainingSettings &settings_;
  graph::ValueId weight_ = graph::ValueId::none;                     // of this rank's micro-batch
  graph::ValueId factor_ = graph::ValueId::none;                     // by which gradients are too large
  std::vector<std::size_t> waiting_;                                 // parameters whose gradients have no norm yet
  std::vector<std::pair<std::size_t, graph::ValueId>> unexchanged_;  // parameters and their gradients that wait
  std::uint64_t unexchanged_bytes_ = 0;
};

}  // namespace protrain::grad
