#include "grad/state_changes.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "base/error.h"
#include "ops/op.h"

namespace protrain::grad {

namespace {

using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::ValueId;

// The statistics that one micro-batch folds into a state, in the order of the nodes that compute them.
struct Change {
  std::vector<ValueId> statistics;
  double momentum = 0;
};

std::map<ValueId, Change> changes_of(const Graph &graph) {
  std::map<ValueId, Change> changes;
  for (const Node &node : graph.nodes()) {
    const ops::Op *op = ops::find(node.op);
    if (op == nullptr) continue;
    for (const ops::StateInput &input : op->states) {
      const ValueId state = node.inputs.at(input.input);
      if (graph.value(state).origin != Origin::state) continue;
      const double momentum = node.attributes.real("momentum", 0);
      const auto [change, fresh] = changes.try_emplace(state, Change{{}, momentum});
      require(change->second.momentum == momentum, Code::unsupported, node.name,
              "it changes {} with momentum {}, and another node with {}", graph.value(state).name, momentum,
              change->second.momentum);
      change->second.statistics.push_back(node.outputs.at(input.statistic));
    }
  }
  return changes;
}

// Replaces each statistic of this rank's micro-batch by a value that holds the statistics of all ranks' micro-batches,
// one part for each rank.
void exchange(const Graph &graph, const graph::Shards &shards, Emitter &emitter, std::map<ValueId, Change> &changes) {
  std::vector<ValueId> own;
  std::vector<std::int64_t> bounds;
  for (const auto &[state, change] : changes)
    for (ValueId statistic : change.statistics) {
      own.push_back(statistic);
      for (std::int64_t r = 0; r <= shards.ranks; ++r)
        bounds.push_back(r * element_count(graph.value(statistic).type.shape));
    }
  emitter.begin("statistics", graph::Phase::forward);
  const std::vector<ValueId> all =
      emitter.emit("AllGather", own, {{"rank", std::int64_t{shards.rank}}, {"bounds", bounds}}, own.size());
  auto next = all.begin();
  for (auto &[state, change] : changes)
    for (ValueId &statistic : change.statistics) statistic = *next++;
}

}  // namespace

void change_state(Training &training, Emitter &emitter, const TrainingSettings &settings) {
  const Graph &graph = training.graph;
  training.changed.assign(graph.parameters.size(), ValueId::none);
  std::map<ValueId, Change> changes = changes_of(graph);
  if (!changes.empty() && settings.ranks > 1) exchange(graph, training.shards, emitter, changes);
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const ValueId state = graph.parameters[p];
    const auto change = changes.find(state);
    if (change == changes.end()) continue;
    emitter.begin(graph.value(state).name, graph::Phase::forward);
    std::vector<ValueId> inputs = {state};
    std::ranges::copy(change->second.statistics, std::back_inserter(inputs));
    if (settings.accumulate) inputs.insert(inputs.begin(), emitter.accumulator(graph.value(state).type));
    training.changed[p] =
        emitter.emit(settings.accumulate ? "AccumulateStatistics" : "FoldStatistics", inputs,
                     {{"momentum", change->second.momentum}, {"parts", std::int64_t{settings.ranks}}});
  }
}

}  // namespace protrain::grad
