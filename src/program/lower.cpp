// Plan + graph -> Program. Resident plans only: nodes in graph order on the compute queue, each parameter's Update as
// soon as its gradient is known and nothing reads the weight any more.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "program/arena.h"
#include "program/program.h"

namespace protrain::program {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::ValueId;

std::uint64_t bytes_of(const Graph &graph, ValueId id) {
  const graph::Type &type = graph.value(id).type;
  return byte_count(type.dtype, type.shape);
}

// The value whose bytes each value uses: itself, or what a chain of Reshapes began with.
std::vector<ValueId> storage_roots(const Graph &graph) {
  std::vector<ValueId> roots(graph.value_count());
  for (std::size_t i = 0; i < roots.size(); ++i) roots[i] = static_cast<ValueId>(i);
  for (const Node &node : graph.nodes())
    if (node.op == "Reshape") roots[index(node.outputs[0])] = roots[index(node.inputs[0])];
  return roots;
}

class StateLayout {
 public:
  BufferId add(const std::string &name, std::uint64_t bytes) {
    const std::uint64_t padded = round_up(std::max<std::uint64_t>(bytes, 1), kAlignment);
    state.buffers.push_back({.name = name, .bytes = padded, .offset = state.bytes, .persistent = true});
    state.bytes = checked_add(state.bytes, padded);
    return static_cast<BufferId>(state.buffers.size() - 1);
  }

  void add_constants(const Graph &graph) {
    for (const Node &node : graph.nodes())
      for (ValueId in : node.inputs)
        if (in != ValueId::none && graph.value(in).origin == Origin::constant && !state.of_value.contains(in))
          state.of_value[in] = add(graph.value(in).name, bytes_of(graph, in));
  }

  State state;
};

class Lowering {
 public:
  Lowering(const Source &source, const State &state, const Workspace &workspace)
      : source_(source), state_(state), workspace_(workspace), roots_(storage_roots(source.graph)) {
    program_.buffers = state.buffers;
    program_.state_bytes = state.bytes;
    program_.status = state.status;
    for (const auto &[value, buffer] : state.of_value)
      if (index(value) < roots_.size())
        buffer_of_[roots_[index(value)]] = buffer;  // gradients are not in a forward graph
  }

  Program run() {
    const auto updates = update_positions();
    for (std::size_t i = 0; i < source_.graph.node_count(); ++i) {
      if (source_.graph.nodes()[i].op != "Reshape") emit_run(i);
      if (defines(i, source_.loss)) emit_check(source_.loss, 1);
      for (std::size_t parameter : updates[i]) emit_update(parameter);
    }
    program_.loss = keep_to_end(source_.loss);
    if (source_.norm != ValueId::none) program_.norm = keep_to_end(source_.norm);
    place();
    return std::move(program_);
  }

 private:
  bool defines(std::size_t node, ValueId value) const {
    const auto &outputs = source_.graph.nodes()[node].outputs;
    return std::ranges::find(outputs, value) != outputs.end();
  }

  // Per node: the parameters whose Update may follow it. A weight that is still read later (a tied head) waits.
  std::vector<std::vector<std::size_t>> update_positions() const {
    const Graph &graph = source_.graph;
    std::vector<std::vector<std::size_t>> after(graph.node_count());
    std::vector<std::size_t> last_touch(graph.value_count(), 0);
    for (std::size_t i = 0; i < graph.node_count(); ++i) {
      for (ValueId in : graph.nodes()[i].inputs)
        if (in != ValueId::none) last_touch[index(roots_[index(in)])] = i;
      for (ValueId out : graph.nodes()[i].outputs)
        if (out != ValueId::none) last_touch[index(roots_[index(out)])] = i;
    }
    for (std::size_t p = 0; p < source_.gradients.size(); ++p) {
      if (source_.gradients[p] == ValueId::none) continue;
      const std::size_t weight = last_touch[index(graph.parameters[p])];
      const std::size_t norm = graph.value(source_.squared_norms[p]).producer == NodeId::none
                                   ? 0
                                   : index(graph.value(source_.squared_norms[p]).producer);
      after[std::max(weight, norm)].push_back(p);
    }
    return after;
  }

  BufferId buffer(ValueId value) {
    if (value == ValueId::none) return BufferId::none;
    const ValueId root = roots_[index(value)];
    const auto [at, fresh] = buffer_of_.try_emplace(root, static_cast<BufferId>(program_.buffers.size()));
    if (fresh) add_transient(source_.graph.value(root).name, bytes_of(source_.graph, root));
    return at->second;
  }

  BufferId add_transient(const std::string &name, std::uint64_t bytes) {
    program_.buffers.push_back({.name = name, .bytes = bytes, .offset = 0, .persistent = false});
    intervals_.push_back({.first = program_.instructions.size(), .last = program_.instructions.size(), .bytes = bytes});
    return static_cast<BufferId>(program_.buffers.size() - 1);
  }

  // Every use extends a transient buffer's life to the instruction that is being made.
  BufferId use(BufferId id) {
    if (id != BufferId::none && index(id) >= state_.buffers.size())
      intervals_[index(id) - state_.buffers.size()].last = program_.instructions.size();
    return id;
  }

  void emit(Instruction instruction) {
    for (BufferId id : instruction.inputs) use(id);
    for (BufferId id : instruction.outputs) use(id);
    program_.instructions.push_back(std::move(instruction));
  }

  void emit_run(std::size_t node) {
    Instruction instruction{.kind = Kind::run, .node = static_cast<NodeId>(node)};
    for (ValueId in : source_.graph.nodes()[node].inputs) instruction.inputs.push_back(buffer(in));
    for (ValueId out : source_.graph.nodes()[node].outputs) instruction.outputs.push_back(buffer(out));
    if (workspace_.nodes[node] > 0) instruction.scratch = add_transient("scratch", workspace_.nodes[node]);
    emit(std::move(instruction));
  }

  void emit_check(ValueId scalar, std::uint32_t mark) {
    emit({.kind = Kind::check, .mark = mark, .inputs = {buffer(scalar)}, .outputs = {state_.status}});
  }

  void emit_update(std::size_t parameter) {
    emit_check(source_.squared_norms[parameter], static_cast<std::uint32_t>(2 + parameter));
    Instruction update{.kind = Kind::update, .parameter = parameter};
    update.inputs = {buffer(source_.gradients[parameter]), state_.status};
    update.outputs = {buffer(source_.graph.parameters[parameter])};
    for (BufferId array : state_.of_optimizer[parameter]) update.outputs.push_back(array);
    emit(std::move(update));
  }

  BufferId keep_to_end(ValueId value) {
    const BufferId id = buffer(value);
    if (index(id) >= state_.buffers.size())
      intervals_[index(id) - state_.buffers.size()].last = std::numeric_limits<std::size_t>::max();
    return id;
  }

  void place() {
    program_.arena_bytes = checked_add(state_.bytes, assign_offsets(intervals_));
    for (std::size_t i = 0; i < intervals_.size(); ++i) {
      Buffer &buffer = program_.buffers[state_.buffers.size() + i];
      buffer.offset = state_.bytes + intervals_[i].offset;
      buffer.bytes = intervals_[i].bytes;
    }
  }

  const Source &source_;
  const State &state_;
  const Workspace &workspace_;
  std::vector<ValueId> roots_;
  std::map<ValueId, BufferId> buffer_of_;  // by storage root
  std::vector<Interval> intervals_;        // of the transient buffers, which follow the state's
  Program program_;
};

}  // namespace

State lay_out_state(const Source &training, const Source &evaluation, int state_count, const std::vector<bool> &kept) {
  const Graph &graph = training.graph;
  StateLayout layout;
  layout.state.status = layout.add("status", sizeof(std::uint32_t));
  layout.state.of_optimizer.resize(graph.parameters.size());
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::Value &value = graph.value(graph.parameters[p]);
    const std::uint64_t bytes = bytes_of(graph, graph.parameters[p]);
    layout.state.of_value[graph.parameters[p]] = layout.add(value.name, bytes);
    const ValueId gradient = training.gradients[p];
    if (gradient == ValueId::none) continue;
    for (int i = 0; i < state_count; ++i)
      layout.state.of_optimizer[p].push_back(layout.add(fmt::format("{}/moment{}", value.name, i + 1), bytes));
    if (kept[p]) layout.state.of_value[gradient] = layout.add(value.name + "/gradient", bytes);
  }
  for (ValueId id : graph.inputs) layout.state.of_value[id] = layout.add(graph.value(id).name, bytes_of(graph, id));
  layout.add_constants(graph);
  layout.add_constants(evaluation.graph);
  return std::move(layout.state);
}

Program lower(const Source &source, const plan::Plan &plan, const State &state, const Workspace &workspace) {
  const bool resident = std::ranges::all_of(plan.chunks, [](const auto &c) { return c.tier == plan::Tier::device; });
  const bool keeps = std::ranges::all_of(plan.blocks, [](auto mode) { return mode == plan::BlockMode::keep; });
  require(resident && keeps && plan.order == plan::OptimizerOrder::overlap, Code::unsupported, "plan",
          "only plans that keep every chunk and every activation on the device can be run");
  return Lowering(source, state, workspace).run();
}

}  // namespace protrain::program
