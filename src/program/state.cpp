// Lays out the buffers that outlive a step: the first part of each arena.
#include <algorithm>

#include "base/error.h"
#include "program/program.h"
#include "program/storage.h"

namespace protrain::program {

namespace {

using graph::Graph;
using graph::Origin;
using graph::ValueId;

// Layout gives a place to everything that outlives a step: weights, optimizer state, gradients that rest, inputs,
// constants and the status. All Programs of a session, for every binding of shapes, share these places, so they come
// first in each arena and no Program may move them.
class Layout {
 public:
  Layout(const std::vector<LoweringInput> &sources, const plan::Plan &plan, const StateRequest &request)
      : sources_(sources), training_(sources.front()), plan_(plan), request_(request) {}

  State run() {
    state_.exchanges = request_.exchanges;
    state_.parameters.resize(training_.graph.parameters.size());
    state_.optimizer_arrays = request_.optimizer;
    state_.shards = request_.shards.bounds.empty() ? graph::cut_shards(training_.graph, 0, 1) : request_.shards;
    add_chunks();
    if (const plan::Chunk states = chunk_of_states(); !states.parameters.empty())
      add_chunk(states, "state", state_.chunks.emplace_back());
    add_kept();
    add_verdict();
    add_inputs();
    for (const LoweringInput &source : sources_) add_values(source);
    return std::move(state_);
  }

 private:
  BufferId add(const std::string &name, std::uint64_t bytes, Tier tier, Owner owner = Owner::workspace) {
    const std::uint64_t alignment = alignment_in(tier);
    std::uint64_t &end = state_.bytes[tier];
    const std::uint64_t padded = round_up(std::max<std::uint64_t>(bytes, 1), kAlignment);
    const std::uint64_t offset = round_up(end, alignment);
    state_.buffers.push_back({.name = name,
                              .tier = tier,
                              .bytes = padded,
                              .offset = offset,
                              .alignment = alignment,
                              .persistent = true,
                              .owner = owner});
    end = round_up(checked_add(offset, padded), alignment);
    return static_cast<BufferId>(state_.buffers.size() - 1);
  }

  Tier resting_place(const plan::Chunk &chunk) const {
    return plan_.shared_memory && chunk.tier == Tier::host ? Tier::device : chunk.tier;
  }

  // True if the chunk's gradients outlive backward.
  bool gradients_rest(const plan::Chunk &chunk) const {
    return plan_.order == plan::OptimizerOrder::barrier || chunk.deferred || request_.accumulates;
  }

  // Returns the chunk of the parameters that forward changes, such as running means. They rest on the device of every
  // rank, whatever the plan.
  plan::Chunk chunk_of_states() const {
    plan::Chunk chunk;
    for (std::size_t p = training_.graph.weights().size(); p < training_.graph.parameters.size(); ++p)
      chunk.parameters.push_back(p);
    return chunk;
  }

  bool is_sharded(const plan::Chunk &chunk) const { return state_.shards.ranks > 1 && chunk.sharded; }

  // True if the chunk belongs to the frozen weights that lie at the start of the device's arena.
  bool is_common(const plan::Chunk &chunk) const {
    return resting_place(chunk) == Tier::device && !is_sharded(chunk) && !chunk.parameters.empty() &&
           std::ranges::all_of(chunk.parameters, [&](std::size_t p) {
             return training_.graph.value(training_.graph.parameters[p]).frozen;
           });
  }

  void add_chunks() {
    state_.chunks.resize(plan_.chunks.size());
    const auto add_those = [&](bool common) {
      for (std::size_t c = 0; c < plan_.chunks.size(); ++c)
        if (is_common(plan_.chunks[c]) == common)
          add_chunk(plan_.chunks[c], fmt::format("chunk{}", c), state_.chunks[c]);
    };
    add_those(true);
    state_.frozen_bytes = state_.bytes[Tier::device] = round_up(state_.bytes[Tier::device], kDiskAlignment);
    state_.status = add("status", sizeof(std::uint32_t), Tier::device);
    add_those(false);
  }

  void add_chunk(const plan::Chunk &planned, const std::string &name, State::Chunk &chunk) {
    const Tier tier = resting_place(planned);
    const auto c = static_cast<std::size_t>(&chunk - state_.chunks.data());
    chunk.parameters = planned.parameters;
    chunk.sharded = is_sharded(planned);
    std::uint64_t shards = 0, gradients = 0;
    std::vector<std::uint64_t> arrays(request_.optimizer.size(), 0);  // bytes
    bool trained = false;
    for (std::size_t p : planned.parameters) {
      const ValueId id = training_.graph.parameters[p];
      const std::uint64_t element = size_of(training_.graph.value(id).type.dtype);
      State::Parameter &parameter = state_.parameters[p];
      parameter = {.chunk = c,
                   .whole_at = chunk.whole_bytes,
                   .weights_at = shards,
                   .gradient_at = gradients,
                   .optimizer_at = arrays,
                   .elements = static_cast<std::uint64_t>(state_.shards.elements(p)),
                   .trained = training_.gradients[p] != ValueId::none,
                   .group = request_.groups.empty() ? 0 : request_.groups[p]};
      if (!chunk.sharded)
        parameter.weights_at = chunk.whole_bytes + static_cast<std::uint64_t>(state_.shards.begin(p)) * element;
      chunk.whole_bytes = checked_add(chunk.whole_bytes, padded(bytes_of(training_.graph, id)));
      shards = checked_add(shards, padded(parameter.elements * element));
      if (!parameter.trained) continue;
      trained = true;
      for (std::size_t i = 0; i < arrays.size(); ++i)
        arrays[i] = checked_add(arrays[i], round_up(request_.optimizer[i].bytes(parameter.elements), kAlignment));
      gradients =
          checked_add(gradients, round_up(std::max<std::uint64_t>(bytes_of_gradient(p), 1), alignment_in(tier)));
    }
    chunk.weights = add(name + "/weights", chunk.sharded ? shards : chunk.whole_bytes, tier, Owner::weights);
    if (!trained) return;
    for (std::size_t i = 0; i < arrays.size(); ++i)
      chunk.optimizer.push_back(add(name + "/" + request_.optimizer[i].name, arrays[i], tier, Owner::optimizer));
    if (gradients_rest(planned)) chunk.gradient = add(name + "/gradient", gradients, tier, Owner::gradients);
  }

  // Returns the size of a place for `bytes` bytes of a parameter: rounded up to kAlignment and never 0. A parameter
  // without elements has a place too, because instructions name it.
  static std::uint64_t padded(std::uint64_t bytes) { return round_up(std::max<std::uint64_t>(bytes, 1), kAlignment); }

  std::uint64_t bytes_of_gradient(std::size_t p) const { return bytes_of(training_.graph, training_.gradients[p]); }

  void add_kept() {
    state_.kept.assign(state_.parameters.size(), BufferId::none);
    for (std::size_t p = 0; p < state_.kept.size(); ++p)
      if (request_.kept[p] && state_.chunks[state_.parameters[p].chunk].gradient == BufferId::none) {
        const ValueId id = training_.graph.parameters[p];
        state_.kept[p] = add(training_.graph.value(id).name + "/gradient", bytes_of_gradient(p),
                             plan_.shared_memory ? Tier::device : Tier::host, Owner::gradients);
      }
  }

  void add_verdict() {
    const bool on_host = std::ranges::any_of(plan_.chunks, [&](const plan::Chunk &chunk) {
      return resting_place(chunk) != Tier::device && chunk.update == Tier::host && gradients_rest(chunk);
    });
    if (plan::defers(plan_)) {
      state_.held = add("held", sizeof(std::uint32_t), Tier::device);
      state_.scale = add("scale", sizeof(float), Tier::device);
    }
    if (!on_host) return;
    state_.host_status = add("host/status", sizeof(std::uint32_t), Tier::host);
    state_.host_scale = add("host/scale", sizeof(float), Tier::host);
  }

  // Adds one buffer for each input, large enough for the input under every binding.
  void add_inputs() {
    std::size_t bindings = 0;
    for (const LoweringInput &source : sources_) bindings = std::max(bindings, source.binding + 1);
    state_.of_value.resize(bindings);
    for (std::size_t i = 0; i < training_.graph.inputs.size(); ++i) {
      std::uint64_t bytes = 0;
      for (const LoweringInput &source : sources_)
        bytes = std::max(bytes, bytes_of(source.graph, source.graph.inputs.at(i)));
      const BufferId id =
          add(training_.graph.value(training_.graph.inputs[i]).name, bytes, Tier::device, Owner::inputs);
      for (const LoweringInput &source : sources_) state_.of_value[source.binding][source.graph.inputs[i]] = id;
    }
  }

  // Adds constants that nodes read, and accumulators that belong to no parameter.
  void add_values(const LoweringInput &source) {
    auto &of_value = state_.of_value[source.binding];
    for (const graph::Node &node : source.graph.nodes())
      for (ValueId in : node.inputs) {
        if (in == ValueId::none || of_value.contains(in)) continue;
        const graph::Value &value = source.graph.value(in);
        const bool accumulator = value.origin == Origin::accumulator &&
                                 std::ranges::find(source.accumulators, in) == source.accumulators.end();
        if (value.origin == Origin::constant)
          of_value[in] = add(value.name, bytes_of(source.graph, in), Tier::device, Owner::inputs);
        if (accumulator) of_value[in] = sum_named(value.name, bytes_of(source.graph, in));
      }
  }

  // Returns the accumulator of this name. Micro-batches of one step may have several bindings, but they add to the same
  // accumulators.
  BufferId sum_named(const std::string &name, std::uint64_t bytes) {
    const auto found = sums_.find(name);
    if (found != sums_.end()) return found->second;
    return sums_[name] = add(name, bytes, Tier::device, Owner::gradients);
  }

  const std::vector<LoweringInput> &sources_;
  const LoweringInput &training_;
  const plan::Plan &plan_;
  const StateRequest &request_;
  State state_;
  std::map<std::string, BufferId> sums_;  // accumulators that belong to no parameter
};

}  // namespace

Operand State::weights(std::size_t p) const { return {chunks[parameters[p].chunk].weights, parameters[p].weights_at}; }

Operand State::optimizer(std::size_t p, std::size_t which) const {
  return {chunks[parameters[p].chunk].optimizer[which], parameters[p].optimizer_at[which]};
}

Operand State::gradient(std::size_t p) const {
  return {chunks[parameters[p].chunk].gradient, parameters[p].gradient_at};
}

std::vector<OptimizerArray> optimizer_arrays(DType weights, const std::vector<OptimizerArray> &state) {
  std::vector<OptimizerArray> arrays;
  if (weights == DType::bf16) arrays.push_back({.name = "low", .dtype = DType::u16});
  if (weights == DType::f16) arrays.push_back({.name = "master"});
  arrays.insert(arrays.end(), state.begin(), state.end());
  return arrays;
}

State lay_out_state(const std::vector<LoweringInput> &sources, const plan::Plan &plan, const StateRequest &request) {
  return Layout(sources, plan, request).run();
}

}  // namespace protrain::program
